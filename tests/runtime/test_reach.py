"""The reach of verification: branches for large sizes, special points; and its limits."""

import dataclasses
import itertools
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import derivatrix as dx
from derivatrix import runtime
from derivatrix.compiler.driver import comparison
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.runtime import measure, operators, reach, sampling, special, trials
from derivatrix.runtime.checks import Trial, check_float32
from derivatrix.runtime.domains import contains
from derivatrix.runtime.interface import CallError, ModuleInterface
from derivatrix.runtime.reach import Run
from derivatrix.runtime.reference import OutOfDomain
from derivatrix.runtime.report import Reach, Report, Row
from derivatrix.runtime.work import ROOT_OPS, Work
from derivatrix.runtime.workers import Workers
from tests import fakes, marked
from tests.marked import MARK, Copy
from tests.packages import loaded

n, m = dx.dims("n m")
X = dx.matrix("X", n, n)


@pytest.fixture(scope="module")
def square():
    return dx.compile(dx.function("square", [X], X @ X))


def spoilt(module, tmp_path, old, new):
    """The module from a file in which a line of a kernel is another."""
    with open(module.__file__, encoding="utf-8") as file:
        text = file.read()
    assert text.count(old) == 1
    data = Path(module.__file__).parent / "_formulas" / "square.py"
    return loaded(tmp_path, "square", text.replace(old, new), data.read_text(encoding="utf-8"))


GEMM = "    gemm(1.0, X, True, cotangent, False, 0.0, out)  # out = Xᵀ cotangent\n"


@pytest.mark.parametrize("least", [40, 300])
def test_a_kernel_wrong_at_large_sizes_alone_fails(square, tmp_path, least):
    line = f"    if len(X) > {least}:\n        out[0, 0] += 0.5\n"
    wrong = spoilt(square, tmp_path, GEMM, f"{GEMM}{line}")
    report = runtime.verify(wrong)
    failures = {(row.check, row.function) for row in report.failures}
    assert failures & {("adjoint", "jvp"), ("products", "vjp")}


def test_a_right_module_passes_and_says_what_was_reached(square):
    report = runtime.verify(square)
    assert report.passed, str(report)
    assert report.reach.total == report.reach.reached >= 4
    assert f"sizes beyond {report.reach.total} of {report.reach.total} thresholds" in str(report)


def test_thresholds_that_no_size_is_beyond_are_listed(square, tmp_path):
    """Numbers of kernels, however they are compared; what takes too much work is not called."""
    line = f"    if not 700 < len(X) or len(X) < {LARGE_SQUARE}:\n        out[0, 0] += 0.0\n"
    module = spoilt(square, tmp_path, GEMM, f"{GEMM}{line}")
    assert set(reach.threshold_numbers([module.vjp])) == {700, LARGE_SQUARE}
    runs, result = reach.choose_runs(ModuleInterface(module))
    assert {min(run.sizes.values()) for run in runs} >= {65, 701}
    assert result.missed == (f"vjp_kernel: some size is {LARGE_SQUARE} at most",)
    assert result.reached == result.total - 1


def test_thresholds_are_read_from_a_function_with_a_closure_that_is_empty_yet():
    def compares(n):
        return n > 700 or n < COMPARED_LENGTH or later()

    numbers = reach.threshold_numbers([compares])
    later = len  # the closure's cell is empty when the constants are read
    assert set(numbers) == {700, COMPARED_LENGTH}
    assert later is len


COMPARED_LENGTH = 48
LARGE_SQUARE = 1090
"""A threshold beyond which X @ X has too many entries for a call."""


def test_every_condition_of_a_function_is_false_at_some_size(square):
    conditions = square.generated.data["conditions"]
    assert all(conditions[kind] for kind in square.FUNCTIONS)
    runs, result = reach.choose_runs(ModuleInterface(square))
    for kind in square.FUNCTIONS:
        for text in conditions[kind]:
            assert not all(eval(text, {}, run.sizes) for run in runs if kind in run.kinds), text
    assert result.missed == ()


WITH_BRANCHES = {
    "A*B": "A: n m, B: m k",
    "tanh(A*x)": "A: n m, x: m",
    "inv(X'*X + eye)*X'*y": "X: n d, y: n",
    "logdet(S) + x'*inv(S)*x": "S: n n spd, x: n",
    "inv(A)*B": "A: n n invertible, B: n k",
    "inv(L)*B": "L: n n lower, B: n k",
    "sum(inv(A))": "A: n n invertible",
    "tr(sqrtm(S))": "S: n n spd",
    "tr(X'*X*X'*X)": "X: n m",
    "X*w/norm2(w)": "X: n d, w: d",
}
"""Functions whose kernels and helpers go other ways at other sizes, and their inputs."""


@pytest.mark.thorough
@pytest.mark.parametrize("text", WITH_BRANCHES)
def test_the_sizes_chosen_reach_the_branches_that_many_sizes_reach(text):
    """Marks in a copy show which, in a process that compiles it without optimisation."""
    with Workers(1, marked.ENVIRONMENT) as workers:
        call = f"{__name__}:missed_branches"
        (missed,) = workers.map(call, [[text, WITH_BRANCHES[text]]], lambda *_: None)
    assert missed == []


def missed_branches(case):
    """The branches that many sizes reach, and those of verification do not."""
    module = dx.compile(text_function(*case))
    copy = marked.Copy(module)
    assert marked.verified(copy, module).passed
    reached = set(copy.taken())
    interface = ModuleInterface(copy.module)
    work = Work(interface)
    for size in sorted({2**k + 1 for k in range(2, 17)} | {3 * 2**k + 1 for k in range(2, 9)}):
        for sizes in sampling.enlarged(interface, size):
            if work.operations(sizes) <= 1e8:
                point = next(sampling.draws(interface, sizes, np.random.default_rng(0)))
                for kind in interface.kinds:
                    if reach.entries(interface, kind, sizes) <= reach.MAX_ENTRIES:
                        with suppress(CallError):
                            interface.results(kind, point)
    return [copy.places[number] for number in sorted(set(copy.taken()) - reached)]


def test_a_copy_has_a_mark_for_every_branch_of_a_compiled_function(square):
    copy = Copy(square)
    point = next(sampling.draws(ModuleInterface(square), {"n": 3}, np.random.default_rng(0)))
    result = copy.module.jacobian(*point.values.values())
    assert np.array_equal(result, square.jacobian(*point.values.values()))
    made = {copy.places[place] for place in copy.taken()}
    assert {name for name, _ in made} == {
        "jacobian_kernel",
        "border (_support/cpu/kernels.py)",
        "find_overlap (_support/internals/memory.py)",
    }
    assert len([name for name, _ in made if name.isidentifier()]) == 5 and copy.taken() == []
    assert not hasattr(square, MARK)


def test_a_copy_is_verified_at_the_sizes_of_the_module(square):
    copy = Copy(square)
    report = marked.verified(copy, square)
    assert report.passed and copy.taken()
    usual = {(row.check, row.point) for row in runtime.verify(square).rows}
    assert {(row.check, row.point) for row in report.rows} == usual


def test_points_do_not_depend_on_the_speed_of_the_machine(square, monkeypatch):
    usual = reach.choose_runs(ModuleInterface(square))
    monkeypatch.setattr(time, "process_time", itertools.count(0, 100).__next__)
    monkeypatch.setattr(time, "perf_counter", itertools.count(0, 100).__next__)
    assert reach.choose_runs(ModuleInterface(square)) == usual


def test_sizes_at_which_rounding_decides_the_value_are_replaced(square):
    """They pass no thresholds, and other sizes that do are called instead."""
    tried = []

    def make(run):
        tried.append(run.sizes["n"])
        return run.sizes["n"] != 65

    runs, result = reach.choose_runs(ModuleInterface(square), make)
    assert tried[0] == 65 and {run.sizes["n"] for run in runs} == {n for n in tried if n != 65}
    assert tried.count(65) == 1
    assert result.reached == result.total


@pytest.mark.parametrize("text", ["det(X'*X)", "logdet(X'*X)", "tr(X'*X) - sum(X.^2)"])
def test_values_that_are_all_rounding_are_not_compared_at_large_sizes(text):
    function = text_function(text, "X: p k", name="rounded")
    with pytest.raises(OutOfDomain, match="rounding"):
        measure.large(comparison._interface(function), {"p": 3, "k": 30}, 0, ["value"])


def test_sizes_for_which_work_arrays_are_too_large_are_not_called():
    A = dx.matrix("A", n, m)
    module = dx.compile(dx.function("gram", [A], dx.det(A.T @ A)))
    runs, _ = reach.choose_runs(ModuleInterface(module))
    assert max(run.sizes["m"] for run in runs) > 100
    assert max(run.sizes["m"] for run in runs if "hessian" in run.kinds) < 100

    x = dx.vector("x", n)
    module = dx.compile(dx.function("product", [x], dx.prod(x)))
    runs, _ = reach.choose_runs(ModuleInterface(module))
    assert max(run.sizes["n"] for run in runs) > 10_000
    for kind in ("hvp", "hessian_operator"):  # they need n² entries
        assert max(run.sizes["n"] for run in runs if kind in run.kinds) < 5_000


def test_work_grows_as_the_declaration_says():
    y, Y = dx.vector("y", n), dx.matrix("Y", 8, n)
    counts = {
        "trace_of_product": (dx.trace(Y.T @ Y), [Y], 2),
        "elementwise": (dx.sum(dx.exp(y)), [y], 1),
        "pairs": (dx.sum(dx.exp(y[:, None] * y[None, :])), [y], 2),
        "product": (X @ X, [X], 3),
        "inverse": (dx.inv(X), [X], 3),
        "orthonormal": (dx.qr(X).Q, [X], 3),
        "constant_terms": (dx.tanh(dx.ones(40, 40)) @ dx.ones(40, 1) * dx.sum(dx.exp(y)), [y], 1),
    }
    for name, (expression, inputs, power) in counts.items():
        function = dx.function(name, inputs, expression)
        work = Work(comparison._interface(function))
        growth = work.operations({"n": 2000}) / work.operations({"n": 1000})
        assert 2 ** (power - 0.3) < growth < 2 ** (power + 0.1), name


def test_eigenvectors_without_a_correct_digit_in_float32_pass():
    """At n = 129, eigenvalues are so near each other that float32 cannot tell them apart."""
    S = dx.matrix("S", n, n, "spd")
    module = dx.compile(
        dx.function("vectors", [S], dx.eigh(S).eigenvectors, kinds=["value", "vjp"])
    )
    interface = ModuleInterface(module)
    trial = Trial(interface, measure.large(interface, {"n": 129}, 0, ["value", "vjp"]))
    check_float32(trial)
    assert trial.rows and all(row.passed for row in trial.rows)


def conditional(module, kind, when):
    """The module with a function that is wrong where `when` says so of its first argument."""
    function = getattr(module, kind)

    def wrong(*arguments, out=None):
        result = function(*arguments, out=out)
        if when(np.asarray(arguments[0])):
            result += 1e-3 * (1 + np.abs(result))
        return result

    setattr(module, kind, wrong)
    return module


CONDITIONS = {
    "size > 64": lambda array: len(array) > 64,
    "size 1": lambda array: len(array) == 1,
    "zeros": lambda array: not array.any(),
    "ones": lambda array: (array == 1).all(),
    "a large entry": lambda array: array.max() > 1e3,
    "a large negative entry": lambda array: array.min() < -1e3,
    "equal rows": lambda array: len(array) > 1 and array.any() and (array == array[0]).all(),
    "no positive entry": lambda array: len(array) > 1 and array.any() and (array <= 0).all(),
}


@pytest.mark.parametrize("kind", ["value", "vjp", "jvp"])
@pytest.mark.parametrize("name", CONDITIONS)
def test_a_function_wrong_in_special_cases_alone_fails(name, kind):
    report = runtime.verify(conditional(fakes.square(), kind, CONDITIONS[name]))
    failures = {row.function for row in report.failures}
    assert failures <= {kind, "jvp"} if kind == "vjp" else kind in failures
    assert not report.passed


def test_at_large_sizes_only_what_is_checked_is_called():
    """Without second derivatives, the gradient is not called for their differences."""
    module = fakes.energy()
    called = []
    right = module.gradient

    def noted(*arguments, out=None):
        called.append(len(arguments[0]))
        return right(*arguments, out=out)

    module.gradient = noted
    interface = ModuleInterface(module)
    for kinds in (("value", "jvp"), ("value", "jvp", "hvp")):
        rows = [
            row for found in trials.large(interface, Run({"n": 65}, kinds), 0) for row in found.rows
        ]
        assert {row.function for row in rows} == {*kinds} and all(row.passed for row in rows)
        assert ("hvp" in kinds) == (
            ("differences", "hvp") in [(row.check, row.function) for row in rows]
        )
        assert bool(called) == ("hvp" in kinds)


def test_kinks_and_poles_are_no_faults():
    """The module is right: the declaration has no derivative, or no value, at special points, or
    rounding decides its value there."""
    x = dx.vector("x", n)
    y = dx.vector("y", n)
    for name, expression in {
        "kinks": dx.sum(abs(x) * dx.maximum(x, y)) + dx.max(x),
        "poles": dx.sum(x / y) + dx.sum(dx.log(abs(x))),
        "jumps": dx.sum(dx.sign(x) * y * dx.floor(y)),
        "steep_times_zero": dx.sum(dx.sqrt(abs(x)) * y),
        "rounding": dx.sqrt(abs(x) - abs(dx.sin(x))) + y,
        "overflow": dx.minimum(0, dx.exp(x) - 1) + y / dx.sum(dx.exp(y)),
        "edges": dx.arccos(x @ y / (dx.norm(x) * dx.norm(y))),
    }.items():
        module = dx.compile(dx.function(name, [x, y], expression))
        interface = ModuleInterface(module)
        rows = trials._check_special_points(interface, {}, 0).rows
        assert rows and all(row.passed for row in rows), [row for row in rows if not row.passed]


def test_an_operator_that_is_all_rounding_is_not_inverted():
    x = dx.vector("x", n)
    logit = dx.log(dx.sigmoid(x) / (1 - dx.sigmoid(x)))  # = x
    module = dx.compile(dx.function("logit", [x], dx.sum(logit)))
    interface = ModuleInterface(module)
    trial = Trial(interface, measure.small(interface, {}, 0)[0], ["hessian"])
    assert 0 < np.abs(trial.copies["hessian"]["x, x"]).max() < 1e-12
    operators.check_operators(trial)
    assert {row.check for row in trial.rows} >= {"operator", "todense"}
    assert all(row.passed and row.check != "solve" for row in trial.rows)


@pytest.mark.parametrize(
    ("structure", "domain"),
    [
        *(("general", domain) for domain in ("", "positive", "nonneg", "fraction")),
        *((structure, "") for structure in ("symmetric", "spd", "lower", "diagonal")),
    ],
)
def test_special_points_are_inside(structure, domain):
    module = fakes.square()
    (given,) = module.INPUTS
    module.INPUTS = ({**given, "structure": structure, "domain": domain},)
    interface = ModuleInterface(module)
    result = [at.point for at in special.points(interface, {}, 0)]
    assert {1} < {point.sizes["n"] for point in result}
    for point in result:
        assert contains(structure, point.values["X"]) and contains(domain, point.values["X"])
        assert np.array_equal(sampling.project(structure, point.values["X"]), point.values["X"])
    labels = " ".join(point.label for point in result)
    assert ("zeros" in labels) == (
        domain in ("", "nonneg") and structure in ("general", "symmetric")
    )


def test_reach_survives_a_certificate():
    row = Row("value", "value", "", "point 1", 0.0, 1e-9, True)
    line = "f_kernel: some size is 64 at most"
    report = Report("f", "0", (row,), reach=Reach(3, 5, (line,)))
    assert Report.from_dict(report.to_dict()) == report
    assert "sizes beyond 3 of 5 thresholds" in str(report) and line in str(report)
    with pytest.raises(TypeError):
        Report.from_dict({**report.to_dict(), "reach": dataclasses.asdict(Reach(missed={"f": 3}))})


def test_the_work_of_roots_is_counted():
    x, y = dx.vector("x", n), dx.vector("y", n)
    sample = dx.function("sample", [y], dx.root(x + x**3 - y, x, y), batch=[y])
    work = Work(comparison._interface(sample))
    assert work.operations({"n": 3, "batch": 1000}) > 1000 * ROOT_OPS / 10
