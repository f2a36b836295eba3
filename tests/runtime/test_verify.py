"""The runtime on hand-written modules: what is right passes, and whatever is wrong does not."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import derivatrix as dx
from derivatrix import runtime
from derivatrix.runtime import errors, measure, sampling
from derivatrix.runtime.differences import differentiate
from derivatrix.runtime.domains import DOMAINS
from derivatrix.runtime.interface import SCALAR_KINDS, ModuleInterface, interfaces
from derivatrix.runtime.reference import BrokenText, OutOfDomain, Text
from tests import ROOT, fakes
from tests.fakes import FAKES, entry, fake
from tests.packages import loaded

SMALL = {"n": 3, "d": 3, "c": 4, "k": 3, "batch": 2}


def small_sizes(module):
    """Sizes for every name of the module, so that no larger point is tried."""
    return {name: SMALL[name] for name in ModuleInterface(module).size_names}


def failed_checks(report):
    return {(row.check, row.function) for row in report.failures}


def arrays_of(result):
    """The arrays in a result, nested tuples flattened."""
    if isinstance(result, tuple):
        return [array for part in result for array in arrays_of(part)]
    return [result]


def altered(module, kind, alter):
    """The module with `alter` applied to every result of one function: it changes arrays."""
    function = getattr(module, kind)

    def wrong(*arguments, out=None):
        result = function(*arguments, out=out)
        alter(arrays_of(result))
        return result

    setattr(module, kind, wrong)
    return module


def scale_all(arrays):
    for array in arrays:
        array *= 1 + 1e-4


def shift_entry(part, index):
    """Make one entry of one array wrong by 1e-4 of itself, or of the array if it is tiny."""

    def alter(arrays):
        array = arrays[part % len(arrays)]
        size = np.abs(array).max() or 1
        where = np.unravel_index(index % array.size, array.shape)
        entry = abs(array[where])
        array[where] += 1e-4 * (entry if entry > 1e-3 * size else size)

    return alter


KINDS = [(name, kind) for name, make in FAKES.items() for kind in make().FUNCTIONS]


@pytest.mark.parametrize("name", FAKES)
def test_a_right_module_passes(name):
    report = runtime.verify(FAKES[name]())
    assert report.passed, str(report)
    assert report.function == name
    kinds = {row.function for row in report.rows if row.check not in ("functions",)}
    assert kinds == set(FAKES[name]().FUNCTIONS)
    checks = {row.check for row in report.rows}
    assert {"value", "differences", "control", "adjoint", "products", "repeat"} <= checks
    assert {"out", "formula", "float32", "layout", "functions"} <= checks
    assert ("symmetry" in checks) == ("hessian" in kinds)


def refuse(*arrays):
    raise ValueError("batch axes differ")


@pytest.mark.parametrize(
    ("applies", "wrong"),
    [
        (lambda x, W, b, G: x.ndim == 3, lambda result: result.swapaxes(0, 1)),
        (lambda x, W, b, G: x.ndim == 1, lambda result: result[None]),
        (lambda x, W, b, G: x.ndim == 1, lambda result: 1.0001 * result),
        (lambda x, W, b, G: x.ndim == 2 and len(x) != len(G), refuse),
        (lambda x, W, b, G: x.ndim == 2 and len(x) != len(G), lambda result: result[:1]),
    ],
    ids=["exchanged", "added", "one sample", "no broadcasting", "not broadcast"],
)
def test_wrong_batch_axes_fail(applies, wrong):
    module = fakes.classifier()
    right = module.vjp

    def vjp(*arrays, **options):
        result = right(*arrays, **options)
        return result._replace(x=wrong(result.x)) if applies(*arrays) else result

    module.vjp = vjp
    failures = runtime.verify(module).failures
    assert {(row.check, row.function) for row in failures} == {("batch axes", "vjp")}


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_a_result_off_by_one_in_ten_thousand_fails(name, kind):
    module = altered(FAKES[name](), kind, scale_all)
    report = runtime.verify(module, sizes=small_sizes(module))
    assert kind in {row.function for row in report.failures}


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_a_single_wrong_entry_fails(name, kind):
    random = np.random.default_rng(len(name) + len(kind))
    for part in range(4 if kind == "hessian" else 2):
        module = altered(FAKES[name](), kind, shift_entry(part, int(random.integers(1000))))
        report = runtime.verify(module, sizes=small_sizes(module))
        assert kind in {row.function for row in report.failures}


@pytest.mark.parametrize("kind", SCALAR_KINDS)
def test_what_is_wrong_disagrees_with_the_declaration(kind):
    """Not only does something fail: the comparison of that function with the declaration does."""
    report = runtime.verify(altered(fakes.nll(), kind, scale_all), sizes={"d": 3})
    expected = {"value": {"value"}, "value_and_gradient": {"value", "differences"}}
    failed = {check for check, function in failed_checks(report) if function == kind}
    assert expected.get(kind, {"differences"}) <= failed


@pytest.mark.parametrize("name", ["energy", "nll", "entropy"])
def test_a_gradient_is_compared_with_another_kernel(name):
    """The Jacobian's is the same one: what is wrong in both shows beside the VJP."""
    module = altered(FAKES[name](), "gradient", scale_all)
    module.jacobian = module.gradient
    failed = failed_checks(runtime.verify(module, sizes=small_sizes(module)))
    assert {("products", "gradient"), ("differences", "gradient")} <= failed


def test_wrong_only_at_larger_sizes():
    module = fakes.square()
    value = module.value
    module.value = lambda X, out=None: value(X, out=out) * (1 + 1e-4 * (len(X) > 8))
    report = runtime.verify(module)
    points = {row.point for row in report.failures if row.check == "value"}
    assert points == {"point 3: n=16"}
    assert "larger ones were not tried" in str(report)


@pytest.mark.parametrize(
    ("wrong", "note"),
    [
        (lambda result: result.astype(np.float32), "float32, expected float64"),
        (lambda result: result[None], "shape (1, "),
        (lambda result: result.tolist(), "list where an array is expected"),
        (lambda result: (result, result), "does not return an array"),
        (lambda result: result.astype(complex), "complex128"),
    ],
)
def test_results_of_a_wrong_kind_fail(wrong, note):
    module = fakes.square()
    vjp = module.vjp
    module.vjp = lambda X, G, out=None: wrong(vjp(X, G, out=out))
    rows = [row for row in runtime.verify(module).failures if row.check == "call"]
    assert rows and all(row.function == "vjp" and note in row.note for row in rows)


def test_a_plain_tuple_for_several_inputs_fails():
    module = fakes.nll()
    gradient = module.gradient
    module.gradient = lambda *arguments, out=None: tuple(gradient(*arguments, out=out))
    report = runtime.verify(module)
    assert "named tuple with the fields S, m" in str(report)
    assert ("differences", "hessian") in failed_checks(report)


def test_a_function_that_raises_fails():
    module = fakes.square()

    def vjp(X, cotangent, *, out=None):
        raise np.linalg.LinAlgError("Singular matrix")

    module.vjp = vjp
    report = runtime.verify(module)
    assert "raises LinAlgError: Singular matrix" in str(report)


def test_a_result_that_is_not_a_number_fails():
    module = altered(fakes.square(), "jvp", lambda arrays: arrays[0].fill(np.nan))
    assert ("differences", "jvp") in failed_checks(runtime.verify(module))


def test_a_second_run_with_other_bits_fails():
    random = np.random.default_rng(0)

    def jitter(arrays):
        for array in arrays:
            array *= 1 + 1e-15 * random.integers(0, 3, array.shape)

    report = runtime.verify(altered(fakes.square(), "jvp", jitter))
    assert failed_checks(report) == {("repeat", "jvp")}


def test_a_buffer_that_is_returned_twice_fails():
    module = fakes.square()
    value, kept = module.value, {}

    def shared(X, out=None):
        result = value(X, out=out)
        buffer = kept.setdefault((*result.shape, result.dtype), np.empty_like(result))
        buffer[...] = result
        return buffer if out is None else out

    module.value = shared
    assert failed_checks(runtime.verify(module)) == {("repeat", "value")}


def test_a_changed_argument_fails():
    module = fakes.square()
    value = module.value

    def greedy(X, out=None):
        result = value(X, out=out)
        if X.flags.writeable:
            X *= 2
        return result

    module.value = greedy
    assert "changes its argument X" in str(runtime.verify(module))


def test_an_argument_given_back_fails():
    module = fakes.relu()
    vjp = module.vjp

    def lazy(x, cotangent, out=None):
        if out is not None or cotangent.dtype != np.float64 or not cotangent.flags.writeable:
            return vjp(x, cotangent, out=out)
        cotangent[...] = vjp(x, cotangent)
        return cotangent

    module.vjp = lazy
    assert not runtime.verify(module).passed
    module.vjp = lambda x, cotangent, out=None: cotangent
    assert "returns the memory of its argument cotangent" in str(runtime.verify(module))


def test_an_ignored_or_half_written_out_fails():
    module = fakes.square()
    value, jacobian = module.value, module.jacobian
    module.value = lambda X, out=None: value(X)
    module.jacobian = lambda X, out=None: _diagonal_left_out(jacobian(X), out)
    report = runtime.verify(module)
    assert failed_checks(report) == {("out", "value"), ("out", "jacobian")}
    assert "the array given as out= is not what is returned" in str(report)


def _diagonal_left_out(result, out):
    if out is None:
        return result
    np.copyto(out, result, where=result != 0)
    return out


def test_arguments_read_by_their_memory_fail():
    module = fakes.square()
    value = module.value

    def careless(X, out=None):
        whole = X if X.base is None else X.base[..., 1]
        return value(whole, out=out)

    module.value = careless
    assert failed_checks(runtime.verify(module)) == {("layout", "value")}


def test_a_double_result_for_single_arguments_fails():
    module = fakes.square()
    jvp = module.jvp
    module.jvp = lambda X, V, out=None: jvp(X.astype(np.float64), V, out=out)
    assert failed_checks(runtime.verify(module)) == {("float32", "jvp")}


def test_a_bad_single_result_fails():
    module = fakes.square()
    jvp = module.jvp

    def rough(X, V, out=None):
        result = jvp(X, V, out=out)
        if result.dtype == np.float32:
            result *= np.float32(1.01)
        return result

    module.jvp = rough
    assert failed_checks(runtime.verify(module)) == {("float32", "jvp")}


@pytest.mark.parametrize(
    "wrong", [lambda X, out: out.fill(0), lambda X: X, lambda X, out: out[0].fill(1)]
)
def test_a_kernel_that_does_not_fill_its_array_fails(wrong):
    module = fakes.square()
    module.value_kernel = wrong
    assert failed_checks(runtime.verify(module)) == {("kernel", "value")}


def test_a_missing_kernel_fails():
    module = fakes.square()
    del module.jvp_kernel
    assert failed_checks(runtime.verify(module)) == {("kernel", "jvp")}


def softmax(x):
    weights = np.exp(x - x.max())
    return weights / weights.sum()


@pytest.mark.parametrize(
    ("declaration", "value", "slope"),
    [
        ("np.tanh(40 * x)", lambda x: np.tanh(40 * x), lambda x: 40 / np.cosh(40 * x) ** 2),
        ("np.sin(1e6 * x)", lambda x: np.sin(1e6 * x), lambda x: 1e6 * np.cos(1e6 * x)),
        ("np.exp(np.exp(3 * x))", lambda x: np.exp(np.exp(3 * x)), None),
        ("1e10 + x * x", lambda x: 1e10 + x * x, lambda x: 2 * x),
        ("np.log(1 / (1 + np.exp(-200 * x)))", None, lambda x: 200 / (1 + np.exp(200 * x))),
    ],
)
def test_a_right_function_passes_where_most_points_tell_nothing(declaration, value, slope):
    """Functions that saturate, oscillate, overflow, or lose digits at ordinary points."""
    value = value or (lambda x: -np.log1p(np.exp(-200 * x)))
    slope = slope or (lambda x: 3 * np.exp(3 * x) * np.exp(np.exp(3 * x)))
    module = scalar_by_scalar(declaration, value, slope)
    assert not unverified(module)
    wrong = scalar_by_scalar(declaration, value, lambda x: slope(x) * (1 + 1e-4))
    assert {kind for _, kind in unverified(wrong)} == {"vjp", "jvp", "jacobian"}


def test_a_right_softmax_passes_where_it_saturates():
    module = fake(
        "softmax",
        [entry("x", "n")],
        {"shape": ("n",), "batched": False},
        "scipy.special.softmax(50 * x)",
        {
            "value": lambda x: softmax(50 * x),
            "vjp": lambda x, G: 50 * softmax(50 * x) * (G - softmax(50 * x) @ G),
            "jvp": lambda x, V: 50 * softmax(50 * x) * (V - softmax(50 * x) @ V),
            "jacobian": lambda x: (
                50 * (np.diag(softmax(50 * x)) - np.outer(softmax(50 * x), softmax(50 * x)))
            ),
        },
        {},
    )
    assert not unverified(module)


def test_a_derivative_that_is_not_projected_fails():
    module = fakes.triangle()
    module.vjp = lambda L, v, G, out=None: _into(np.outer(G, v), out)
    assert ("structure", "vjp") in failed_checks(runtime.verify(module))


def test_a_tangent_that_is_not_projected_fails():
    module = fakes.triangle()
    module.jvp = lambda L, v, V, out=None: _into(V @ v, out)
    assert ("differences", "jvp") in failed_checks(runtime.verify(module))


def _into(result, out):
    result = np.asarray(result)
    if out is None:
        return result
    out[...] = result
    return out


def test_an_asymmetric_hessian_fails():
    def alter(arrays):
        arrays[0][0, 1, 1, 0] += 1.0

    report = runtime.verify(altered(fakes.energy(), "hessian", alter))
    assert ("symmetry", "hessian") in failed_checks(report)


def test_cross_blocks_have_to_agree():
    def alter(arrays):
        arrays[1][...] *= 1.5

    report = runtime.verify(altered(fakes.nll(), "hessian", alter))
    rows = {(row.check, row.input) for row in report.failures}
    assert {("symmetry", "S, m"), ("symmetry", "m, S"), ("differences", "S, m")} <= rows


def test_a_vjp_and_a_jvp_that_are_not_adjoint_fail():
    report = runtime.verify(altered(fakes.classifier(), "vjp", scale_all))
    assert {("adjoint", "jvp"), ("products", "vjp"), ("differences", "vjp")} <= failed_checks(
        report
    )


@pytest.mark.parametrize(
    ("kind", "key", "text", "note"),
    [
        ("value", "", "X @ X * (1 + 1e-4)", "is expected"),
        ("vjp", "X", "G @ X.T + X.T @ G", "name 'G' is not defined"),
        ("vjp", "X", "cotangent @ X.T", "is expected"),
        ("vjp", "X", "cotangent @", "not a Python expression"),
        ("vjp", "X", "sum(cotangent)", "name 'sum' is not defined"),
        ("jvp", "", "tangent[0] @ X", "the text gives shape (3,), expected (3, 3)"),
        ("jvp", "", "", "no NumPy text"),
        ("jacobian", "X", "np.linalg.inv(np.zeros((n, n)))", "LinAlgError"),
    ],
)
def test_a_wrong_formula_fails(kind, key, text, note):
    module = fakes.square()
    module.FORMULAS[kind][key] = {"numpy": text}
    report = runtime.verify(module)
    assert failed_checks(report) == {("formula", kind)}
    assert note in str(report)


def test_a_missing_formula_fails():
    module = fakes.square()
    del module.FORMULAS["jvp"]
    assert failed_checks(runtime.verify(module)) == {("formula", "jvp")}


def test_a_missing_or_unlisted_function_fails():
    module = fakes.energy()
    del module.hvp
    report = runtime.verify(module)
    assert "it has no hvp" in str(report)
    module = fakes.energy()
    module.FUNCTIONS = module.FUNCTIONS[:-1]
    assert failed_checks(runtime.verify(module)) == {("functions", "module")}


def scalar_by_scalar(declaration, value, slope, **options):
    """A module of one number by one number, with its first derivative only, entry by entry."""
    return fake(
        "single",
        [entry("x", "n", **options)],
        {"shape": ("n",), "batched": False},
        declaration,
        {
            "value": value,
            "vjp": lambda x, G: G * slope(x),
            "jvp": lambda x, V: V * slope(x),
            "jacobian": lambda x: np.diag(slope(x)),
        },
        {},
    )


def unverified(module):
    """The failed checks other than those of formulas, which these modules lack."""
    return {pair for pair in failed_checks(runtime.verify(module)) if pair[0] != "formula"}


def test_a_point_where_nothing_can_be_seen_is_reported():
    module = scalar_by_scalar(
        "np.sin(x) + 1e-3 * np.sin(1e14 * x)",
        lambda x: np.sin(x) + 1e-3 * np.sin(1e14 * x),
        lambda x: np.cos(x),
    )
    result = {(check, kind) for check, kind in unverified(module) if check == "control"}
    assert result == {("control", kind) for kind in ("vjp", "jvp", "jacobian")}
    report = runtime.verify(module)
    notes = {row.note for row in report.failures if row.check == "control"}
    assert notes == {"differences here are too inaccurate to see 0.0001"}
    assert "declare the domains" in str(report)


def test_kinks_are_kept_away_from():
    """Kinks a hundred to a unit: hardly a line of a wide stencil is free of them."""
    module = scalar_by_scalar(
        "np.abs(np.sin(300 * x))",
        lambda x: np.abs(np.sin(300 * x)),
        lambda x: 300 * np.cos(300 * x) * np.sign(np.sin(300 * x)),
    )
    assert not unverified(module) - {("float32", kind) for kind in module.FUNCTIONS}


@pytest.mark.parametrize(
    ("declaration", "value", "slope"),
    [
        ("np.log(x)", np.log, lambda x: 1 / x),
        ("np.arcsin(x)", np.arcsin, lambda x: 1 / np.sqrt(1 - x**2)),
        ("np.arccosh(x)", np.arccosh, lambda x: 1 / np.sqrt(x**2 - 1)),
        ("np.log(x) * np.arccos(x)", lambda x: np.log(x) * np.arccos(x), None),
        ("np.sign(x)", np.sign, lambda x: 0 * x),
        ("np.emath.sqrt(x)", np.sqrt, lambda x: 0.5 / np.sqrt(x)),
    ],
)
def test_points_are_found_where_no_domain_is_declared(declaration, value, slope):
    if slope is None:
        slope = lambda x: np.arccos(x) / x - np.log(x) / np.sqrt(1 - x**2)  # noqa: E731
    assert not unverified(scalar_by_scalar(declaration, value, slope))


def test_a_narrower_place_than_the_domain_is_found():
    module = scalar_by_scalar(
        "np.log(1 - x)", lambda x: np.log(1 - x), lambda x: 1 / (x - 1), structure="positive"
    )
    assert not unverified(module)


def test_a_domain_hint_is_followed():
    module = scalar_by_scalar("x * x", lambda x: x * x, lambda x: 2 * x, domain="positive")
    interface = ModuleInterface(module)
    point = next(sampling.draws(interface, {"n": 5}, np.random.default_rng(0)))
    assert (point.values["x"] > 0).all() and "positive" not in point.label


def test_a_function_without_points_is_reported():
    module = scalar_by_scalar("np.log(-x * x)", np.log, lambda x: 1 / x)
    report = runtime.verify(module)
    assert failed_checks(report) == {("point", "module")}
    assert "not finite" in str(report) and "domain" in str(report)


def test_a_declaration_that_cannot_be_read_is_reported():
    module = fakes.square()
    module.DECLARATION = "Y @ X"
    report = runtime.verify(module)
    assert failed_checks(report) == {("declaration", "module")}
    assert "name 'Y' is not defined" in str(report)


def test_sizes_are_large_enough_for_indexing():
    module = fake(
        "last",
        [entry("x", "n")],
        {"shape": (), "batched": False},
        "x[4]",
        {"value": lambda x: x[4]},
        {},
    )
    report = runtime.verify(module)
    assert {row.point for row in report.rows if row.check == "value"} >= {"point 1: n=5"}
    module.REQUIREMENTS = ("n >= 7",)
    report = runtime.verify(module)
    assert {row.point for row in report.rows if row.check == "value"} >= {"point 1: n=7"}


def test_given_sizes_are_used():
    report = runtime.verify(fakes.classifier(), sizes={"c": np.int64(2), "batch": 1, "d": 6})
    assert report.passed
    points = {row.point for row in report.rows} - {""}
    labels = {f"point {number}: d=6, c=2, batch=1" for number in (1, 2)}
    assert points == {*labels, "special points"}


@pytest.mark.parametrize("sizes", [{"q": 3}, {"n": 0}, {"n": 2.5}, {"n": True}])
def test_impossible_sizes_are_refused(sizes):
    with pytest.raises(errors.ShapeError, match=r"square: .*(q|n)"):
        runtime.verify(fakes.square(), sizes=sizes)


def test_the_same_seed_gives_the_same_report():
    first, again, other = (runtime.verify(fakes.square(), seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_progress_is_told():
    lines = []
    runtime.verify(fakes.square(), progress=lines.append)
    small = [f"square: point {number}: n={n}" for number, n in ((1, 3), (2, 2), (3, 16))]
    assert lines == [*small, "square: special points", "square: n=65"]


def test_a_report_is_a_table_a_dict_and_an_error():
    report = runtime.verify(altered(fakes.energy(), "hvp", scale_all))
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert (data["function"], data["digest"]) == ("energy", "digest of energy")
    assert data["passed"] is False
    assert len(data["rows"]) == len(report.rows)
    assert set(data["rows"][0]) == {
        "check",
        "function",
        "input",
        "point",
        "error",
        "tolerance",
        "passed",
        "note",
    }
    text = str(report)
    assert text.startswith("energy: FAILED")
    lines = text.splitlines()
    heads = next(line for line in lines if line.startswith("check"))
    differences = next(line for line in lines if line.startswith("differences"))
    assert differences.index("FAILED") == heads.index("hvp")
    assert max(map(len, lines[:20])) < 110
    with pytest.raises(errors.VerificationError, match=r"energy: [\s\S]*differences of hvp by X"):
        report.raise_for_failure()
    runtime.verify(fakes.energy()).raise_for_failure()


def test_an_empty_report_has_not_passed():
    assert not runtime.Report("nothing", "", ()).passed


def test_a_row_without_a_finite_error_can_be_written():
    row = runtime.Row("call", "vjp", "", "", np.inf, 0.0, False, "raises")
    assert json.dumps(runtime.Report("f", "", (row,)).to_dict(), allow_nan=False)


# Sampling and differences


@pytest.mark.parametrize("structure", DOMAINS)
@pytest.mark.parametrize("batched", [False, True])
def test_points_and_directions_keep_the_structure(structure, batched):
    random = np.random.default_rng(1)
    square = structure not in ("positive", "nonneg", "simplex", "small", "fraction", "above one")
    shape = (4, 4) if square else (3,)
    full = (2, *shape) if batched else shape
    array = sampling.project(structure, DOMAINS[structure].draw(full, random))
    assert array.shape == full
    if structure in ("symmetric", "spd"):
        assert np.array_equal(array, np.swapaxes(array, -1, -2))
    if structure == "spd":
        assert np.linalg.eigvalsh(array).min() >= 1
    if structure == "simplex":
        assert (array > 0).all()
        np.testing.assert_allclose(array.sum(-1), 1, rtol=1e-15)
    if structure == "orthogonal":
        np.testing.assert_allclose(
            np.swapaxes(array, -1, -2) @ array, np.eye(4) + 0 * array, atol=1e-14
        )
    if structure == "real spectrum":
        assert not np.iscomplex(np.linalg.eigvals(array)).any()
    if structure in ("lower", "upper", "diagonal", "invertible", "dominant"):
        assert np.linalg.cond(array).max() < 20
    for most in (100, 2):
        steps = sampling.directions(structure, shape, most, random)
        assert np.array_equal(sampling.project(structure, steps), steps)
        inside = sampling.tangential(structure, array[0] if batched else array, steps)
        if structure == "orthogonal":
            value = array[0] if batched else array
            np.testing.assert_allclose(value.T @ inside, -(value.T @ inside).mT, atol=1e-15)
            steps, inside = inside, sampling.tangential(structure, value, inside)
        np.testing.assert_allclose(inside, steps, atol=1e-15)
    free = {"symmetric": 10, "spd": 10, "lower": 10, "upper": 10, "diagonal": 4}
    count = free.get(structure, int(np.prod(shape)))
    steps = sampling.directions(structure, shape, 100, random)
    assert np.linalg.matrix_rank(steps.reshape(len(steps), -1)) == len(steps) == count


def test_sizes_are_distinct_and_so_are_sums_of_them():
    module = fake(
        "blocks",
        [entry("A", "m", "n"), entry("X", "m", "p"), entry("b", "n+p")],
        {"shape": (), "batched": False},
        "b[0]",
        {},
        {},
    )
    first, second = sampling.assignments(ModuleInterface(module), {})[:2]
    assert first != second
    for sizes in (first, second):
        assert len({*sizes.values(), sizes["n"] + sizes["p"]}) == 4


def test_sizes_keep_every_axis_positive():
    module = fake("f", [entry("x", "n - 4")], {"shape": (), "batched": False}, "x[0]", {}, {})
    assert all(sizes["n"] > 4 for sizes in sampling.assignments(ModuleInterface(module), {}))
    with pytest.raises(errors.ShapeError, match="sizes"):
        sampling.assignments(ModuleInterface(module), {"n": 4})


def test_differences_know_how_good_they_are():
    for function, exact in ((np.exp, 1.0), (np.sin, 1.0), (lambda t: abs(t - 1e-3), -1.0)):
        (actual,) = differentiate(
            lambda t, f=function: (np.array([f(t)]),), (np.array([function(0.0)]),), 1.0
        )
        assert abs(actual.derivative[0] - exact) <= 4 * actual.error[0] + 1e-15
        assert actual.error[0] < 1e-9
    (flat,) = differentiate(
        lambda t: (1 / np.cosh([4.6 + t]) ** 2,), (1 / np.cosh([4.6]) ** 2,), 1.0
    )
    exact = -2 * np.tanh(4.6) / np.cosh(4.6) ** 2
    assert abs(flat.derivative[0] - exact) <= 1e-9 * abs(exact)
    (kink,) = differentiate(lambda t: (np.array([abs(t - 1e-9)]),), (np.array([1e-9]),), 1.0)
    assert kink.error[0] > 0.1 * abs(kink.derivative[0])


def test_differences_of_values_in_which_terms_cancel():
    """Small steps change the value by no unit of rounding; that is no derivative of 0."""

    def line(t: float) -> tuple[np.ndarray]:
        with np.errstate(over="ignore"):  # at wide steps
            return (np.array([8.3 - 8.3 / (1 + 1e-12 * np.exp(3 * t)), 1e-11 * np.sin(t)]),)

    (actual,) = differentiate(line, line(0.0), 1.0)
    exact = np.array([3 * 8.3e-12, 1e-11])
    assert (np.abs(actual.derivative - exact) <= 4 * actual.error).all()
    assert (actual.error <= 0.01 * exact).all()


def test_texts_see_only_their_names():
    assert Text("np.sqrt(x) + k")({"x": np.array(4.0), "k": 3}, ()) == 5.0
    assert Text("scipy.special.erf(x)")({"x": np.array(0.0)}, ()) == 0.0
    assert Text("x + 0j")({"x": np.array(4.0)}, ()) == 4.0
    for text in ("open('x')", "len(x)", "y", "x.nothing", "1 +"):
        with pytest.raises(BrokenText):
            Text(text)({"x": np.ones(2)}, (2,))
    for text in ("np.log(x - 2)", "x * 1j", "x[0]", "np.linalg.inv(x)"):
        with pytest.raises(OutOfDomain):
            Text(text)({"x": np.ones(2)}, (2,))


# Loading and certificates

SOURCE = """
import numpy as np

INPUTS = (
    {"name": "x", "shape": ("n",), "structure": "general", "batched": False, "wrt": True,
     "domain": ""},
)
OUTPUT = {"shape": ("n",), "batched": False}
FUNCTIONS = ("value", "vjp", "jvp", "jacobian")
DECLARATION = "2 * x"
DIGEST: str = "abc"
FORMULAS = {
    "value": {"": {"numpy": "2 * x"}},
    "vjp": {"x": {"numpy": "2 * cotangent"}},
    "jvp": {"": {"numpy": "2 * tangent"}},
    "jacobian": {"x": {"numpy": "2 * np.eye(n)"}},
}


def _finish(result, out):
    if out is None:
        return result
    out[...] = result
    return out


def value(x, *, out=None):
    return _finish(2 * x, out)


def vjp(x, cotangent, *, out=None):
    return _finish(2 * cotangent, out)


def jvp(x, tangent, *, out=None):
    return _finish(2 * tangent, out)


def jacobian(x, *, out=None):
    return _finish(2 * np.eye(len(x), dtype=x.dtype), out)


def value_kernel(x, out):
    value(x, out=out)


def vjp_kernel(x, cotangent, out):
    vjp(x, cotangent, out=out)


def jvp_kernel(x, tangent, out):
    jvp(x, tangent, out=out)


def jacobian_kernel(x, out):
    jacobian(x, out=out)
"""


@pytest.fixture
def package(tmp_path):
    directory = tmp_path / "generated"
    directory.mkdir()
    (directory / "__init__.py").write_text("")
    (directory / "double.py").write_text(SOURCE)
    (directory / "by_hand.py").write_text("raise SystemExit('run by mistake')\n")
    return directory


def test_a_file_is_loaded(package):
    module = runtime.load(package / "double.py")
    assert isinstance(module, ModuleType) and module.value(np.ones(2)).tolist() == [2.0, 2.0]
    assert sys.modules[module.__name__] is module
    assert Path(module.__file__) == (package / "double.py").resolve()
    report = runtime.verify(module)
    assert report.passed, str(report)
    assert (report.function, report.digest) == ("double", "abc")
    assert runtime.load(str(package / "double.py")) is module


def test_a_changed_file_is_loaded_again(package):
    old = runtime.load(package / "double.py")
    (package / "double.py").write_text(SOURCE.replace("abc", "def"))
    new = runtime.load(package / "double.py")
    assert (old.DIGEST, new.DIGEST) == ("abc", "def")
    assert old.__name__ != new.__name__


def test_a_name_is_loaded(package, monkeypatch):
    monkeypatch.syspath_prepend(str(package.parent))
    assert runtime.load("generated.double").DIGEST == "abc"
    assert runtime.verify(runtime.load("generated.double")).function == "double"
    for name in ("generated", "generated.nothing", "no_such_module_at_all"):
        with pytest.raises(errors.LoadError, match=name):
            runtime.load(name)


def test_what_is_not_generated_is_refused_and_never_run(package):
    for name in ("by_hand.py", "absent.py", ""):
        with pytest.raises(errors.LoadError):
            runtime.load(package / name)
    (package / "broken.py").write_text("DIGEST = (")
    with pytest.raises(errors.LoadError, match="not a module that derivatrix generated"):
        runtime.load(package / "broken.py")
    with pytest.raises(errors.LoadError, match="defines no"):
        runtime.verify(np)


def test_a_module_that_needs_more_than_there_is_is_refused(package):
    (package / "double.py").write_text("import no_such_module_at_all\n" + SOURCE)
    before = set(sys.modules)
    with pytest.raises(errors.LoadError, match="no_such_module_at_all"):
        runtime.load(package / "double.py")
    assert set(sys.modules) == before


def test_inputs_that_cannot_be_read_are_refused():
    module = fakes.square()
    del module.INPUTS[0]["structure"]
    with pytest.raises(errors.LoadError, match="square: INPUTS or OUTPUT"):
        runtime.verify(module)


@pytest.mark.parametrize("wrong", [None, 5, "double.py", Path("double.py"), {}])
def test_what_is_no_module_is_not_verified(wrong):
    with pytest.raises(errors.LoadError, match="a generated module is expected"):
        runtime.verify(wrong)


@pytest.mark.parametrize("wrong", [None, 5, b"double.py", ["double.py"]])
def test_what_is_no_path_is_not_loaded(wrong):
    with pytest.raises(errors.LoadError, match="not "):
        runtime.load(wrong)
    with pytest.raises(errors.LoadError, match="not "):
        runtime.load_package(wrong)


def test_a_module_that_raises_is_refused(package):
    path = package / "double.py"
    path.write_text(SOURCE + "\nraise RuntimeError('broken')\n")
    with pytest.raises(errors.LoadError, match="RuntimeError when it is loaded: broken"):
        runtime.load(path)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("INPUTS", 5),
        ("INPUTS", ({"name": "x"},)),
        ("INPUTS", (fakes.entry("x", "n +"),)),
        ("OUTPUT", None),
        ("FUNCTIONS", 3),
        ("FORMULAS", []),
        ("DECLARATION", None),
    ],
)
def test_a_module_with_a_malformed_table_is_refused(name, wrong):
    module = fakes.square()
    setattr(module, name, wrong)
    with pytest.raises(errors.LoadError, match=name):
        runtime.verify(module)


def test_directories_called_like_modules_are_left_out(package):
    (package / "folder.py").mkdir()
    (package / ".#double.py").symlink_to("nowhere")
    assert list(runtime.load_package(package)) == ["double"]


def test_a_package_is_loaded(package):
    assert [path.name for path in runtime.generated_files(package)] == ["double.py"]
    modules = runtime.load_package(package)
    assert list(modules) == ["double"]
    assert modules["double"] is runtime.load(package / "double.py")
    (package / "double.py").unlink()
    with pytest.raises(errors.LoadError, match="derivatrix build"):
        runtime.load_package(package)
    with pytest.raises(errors.LoadError, match="not a directory"):
        runtime.load_package(package / "nothing")


def test_a_package_whose_list_of_modules_is_damaged_is_not_loaded(package):
    text = '"""Generated by derivatrix."""\n\n__all__ = ["double"'
    (package / "__init__.py").write_text(text, encoding="utf-8")
    with pytest.raises(errors.LoadError, match=r"__init__\.py: does not list its modules"):
        runtime.load_package(package)


def test_a_certificate_is_written_and_read(package):
    bad = runtime.verify(altered(fakes.square(), "vjp", scale_all))
    reports = [bad, runtime.verify(runtime.load(package / "double.py"))]
    runtime.write_certificate(package, reports)
    record = runtime.read_certificate(package)
    assert record["passed"] is False
    assert [entry["function"] for entry in record["modules"]] == ["double", "square"]
    assert record["modules"][0] == reports[1].to_dict()
    assert runtime.certified(package) == {"double": "abc"}
    text = (package / "certificate.md").read_text()
    assert "double" in text and "FAILED" in text and str(package) not in text
    before = [path.read_bytes() for path in sorted(package.glob("certificate.*"))]
    assert len(before) == 3
    runtime.write_certificate(package, reports[::-1])
    assert [path.read_bytes() for path in sorted(package.glob("certificate.*"))] == before
    assert not list(package.glob(".*"))


def test_a_certificate_that_cannot_be_read_is_refused(package):
    with pytest.raises(errors.LoadError, match="derivatrix verify"):
        runtime.read_certificate(package)
    for content in ("{", "[]", '{"format": 0}'):
        (package / "certificate.json").write_text(content)
        with pytest.raises(errors.LoadError, match="not a certificate"):
            runtime.read_certificate(package)


def test_a_failed_write_leaves_the_certificate_alone(package, monkeypatch):
    report = runtime.verify(runtime.load(package / "double.py"))
    runtime.write_certificate(package, [report])
    before = (package / "certificate.json").read_bytes()

    def refuse(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="no space left"):
        runtime.write_certificate(package, [])
    assert (package / "certificate.json").read_bytes() == before
    assert not list(package.glob(".*"))


def test_the_runtime_needs_no_compiler():
    """NumPy, SciPy and Numba are all it imports of what is not Python's own."""
    program = """
import sys
for name in ("sympy", "jinja2", "rich", "click", "derivatrix.compiler", "derivatrix.templates"):
    sys.modules[name] = None
from derivatrix import runtime
assert callable(runtime.verify) and callable(runtime.load)
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


SINGLE_FAULTS = {
    "a type": "    if out.itemsize == 4:\n        out[0, 0] += 0.5\n",
    "a small number": "    out[0, 0] += 0.5 if X[0, 0] * 0 + out.dtype.type(1e-60) == 0 else 0.0\n",
}
"""Lines of a kernel that are wrong in float32 alone."""


def compiled_square():
    X = dx.matrix("X", *dx.dims("n n"))
    return dx.compile(dx.function("square", [X], X @ X))


@pytest.mark.parametrize(
    ("kind", "fault"), [("value", "a type"), ("vjp", "a small number"), ("jvp", "a type")]
)
def test_kernels_wrong_in_float32_alone_fail(tmp_path, kind, fault):
    """Also a kernel that is called in float64 alone as long as its lines are those of another."""
    square = compiled_square()
    text = Path(square.__file__).read_text(encoding="utf-8")
    (end,) = re.findall(rf"def {kind}_kernel.*?\n(?=\n)", text, re.DOTALL)
    data = Path(square.__file__).parent / "_formulas" / "square.py"
    wrong = text.replace(end, end + SINGLE_FAULTS[fault])
    module = loaded(tmp_path, "square", wrong, data.read_text(encoding="utf-8"))
    assert ("float32", kind) in failed_checks(runtime.verify(module))


def test_functions_that_do_what_others_do_are_called_in_float64_alone():
    square = compiled_square()
    assert len(ModuleInterface(square).float32_kinds) < len(square.FUNCTIONS)


def test_a_module_of_values_is_not_differentiated_along_single_inputs() -> None:
    x = dx.vector("x", "n")
    module = dx.compile(dx.function("cube", [x], x**3, kinds=["value"]))
    (interface,) = interfaces(module)
    measurements = measure.small(interface, {}, 0)
    assert all(not measurement.first for measurement in measurements)
    assert all(measurement.along.derivative.any() for measurement in measurements)


@pytest.mark.parametrize(("kind", "expected"), [("gradient", False), ("hvp", True)])
def test_gradients_are_differentiated_for_second_derivatives_alone(
    kind: str, expected: bool
) -> None:
    x = dx.vector("x", "n")
    module = dx.compile(dx.function("cubes", [x], dx.sum(x**3), kinds=["gradient", kind]))
    (interface,) = interfaces(module)
    measurements = measure.small(interface, {}, 0)
    assert all(bool(measurement.second_along) == expected for measurement in measurements)
