"""Every case as a generated module: verified, its formulas against its kernels, with batches,
structures, float32, awkward arguments; and its text the same in every process."""

import inspect
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Mapping
from types import ModuleType

import numba
import numpy as np
import pytest
import scipy.special
import sympy

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import STAGES, dump, generate, kernel_plan
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.interpret import evaluate, evaluate_all
from derivatrix.runtime import verify
from derivatrix.runtime.errors import DeclarationError, UnsupportedError
from tests import ROOT
from tests.cases import CASES, EVALUATED, STAGE_TEXTS
from tests.driver.test_examples import FUNCTIONS as EXAMPLES
from tests.packages import set_everywhere
from tests.plain import run_plain
from tests.points import SIZES, draw_all, numbers

LATE = {
    *(case.name for case in EVALUATED),
    *("attention", "batch_shared", "cholesky", "concatenated", "diagonal", "einsum", "entries"),
    *("inverse", "logistic", "logsumexp", "order", "skew", "slices", "sympy"),
    *("affine", "batch_linear", "blocks", "literal", "orthogonal", "powers"),
}
"""Cases that are compiled in thorough tests only."""
ALIKE = {
    *("classifier", "energy", "square"),
    *("cube", "hadamard", "outer", "sandwich", "seventh", "softmax", "solve"),
}
"""More of them, the first of which the examples have too: what others that are compiled have in
their texts is all that these have."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[pytest.mark.thorough] if case.name in LATE | ALIKE else [])
        for case in [*CASES, *EVALUATED]
    ],
    ids=lambda case: case.name,
)
def test_module(case: Function) -> None:
    module = dx.compile(case)
    report = verify(module)
    assert report.passed, str(report)
    compare_with_the_interpreter(case, module)


def called(function: Function) -> set[str]:
    """The kinds of steps in the plans of a function's kernels, and the names that its module calls:
    helper kernels, functions of numbers, and what shares the work of a kernel."""
    plans = [kernel_plan(function.derivatives, kind) for kind in function.kinds]
    steps = {
        type(step).__name__
        for plan in plans
        for each in (plan, *plan.variants)
        for step in each.steps
    }
    return steps | set(re.findall(r"\b[a-z]\w*(?=\()", generate(function).text)) - {function.name}


def test_what_is_compiled_late_is_compiled_elsewhere() -> None:
    compiled = [case for case in CASES if case.name not in LATE | ALIKE]
    there = set().union(*map(called, [*compiled, *EXAMPLES.values()]))
    names = {case.name for case in CASES if case.name in ALIKE and not called(case) <= there}
    assert not names and {case.name for case in CASES} >= ALIKE


def compare_with_the_interpreter(case: Function, module: ModuleType) -> None:
    """Each kernel's numbers against the closed form, evaluated node by node with NumPy."""
    values = draw_all(case)
    for kind in module.FUNCTIONS:
        names = [leaf.name for leaf in case.derivatives.arguments(kind)]
        actual = flat(getattr(module, kind)(*(values[name] for name in names)))
        nodes = case.derivatives.batched(kind).values()
        for array, node in zip(actual, nodes, strict=True):
            expected = evaluate(node, values, SIZES)
            scale = max(1.0, float(np.abs(expected).max(initial=0)))
            assert array.shape == expected.shape
            np.testing.assert_allclose(array, expected, rtol=0, atol=1e-10 * scale)


def flat(result: object) -> list[np.ndarray]:
    if isinstance(result, tuple):
        return [array for part in result for array in flat(part)]
    return [np.asarray(result)]


@pytest.mark.parametrize("case", [*CASES, *EVALUATED], ids=lambda case: case.name)
def test_plans(case: Function) -> None:
    check_plans(case, SIZES)


def check_plans(case: Function, sizes: Mapping[str, int]) -> None:
    """Run every kernel as Python, in every order of multiplication."""
    values = draw_all(case, sizes=sizes)
    for kind in case.kinds:
        kernel = kernel_plan(case.derivatives, kind)
        expected = evaluate_all(list(case.derivatives.kernel(kind)[1].values()), values, sizes)
        for plan in (kernel, *kernel.variants):
            outputs = [np.full(array.shape, np.nan) for array in expected]
            run_plain(plan, values, outputs)
            for output, array in zip(outputs, expected, strict=True):
                scale = max(1.0, float(np.abs(array).max(initial=0)))
                np.testing.assert_allclose(output, array, rtol=0, atol=1e-10 * scale)


TEXTS_OF = ["square", "entries", "cubic"]


def texts() -> str:
    """The texts of the modules of TEXTS_OF, one after the other."""
    n = dx.dims("n")
    a, b, X = dx.vector("a", n), dx.vector("b", n), dx.matrix("X", n, n)
    cubic = dx.function("cubic", [a, X, b], a @ X @ X @ X @ b, wrt=[X])
    cases = {case.name: case for case in [*CASES, *EVALUATED, cubic]}
    return "".join(generate(cases[name]).text for name in TEXTS_OF)


def test_text_is_the_same_in_every_process() -> None:
    """Whatever the seed of hashes, and whatever was derived before."""
    expected = texts()
    program = f"import sys; from {__name__} import texts; sys.stdout.buffer.write(texts().encode())"
    process = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
        cwd=ROOT,
    )
    assert process.stdout.decode() == expected
    assert str(ROOT) not in expected


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_can_be_shown(stage: str) -> None:
    assert STAGE_TEXTS[stage] in dump(CASES[0], stage)


def test_unknown_stage_and_target() -> None:
    with pytest.raises(DeclarationError, match="stage"):
        dump(CASES[0], "dream")
    with pytest.raises(UnsupportedError, match="target"):
        generate(CASES[0], target="abacus")


n, m = dx.dims("n m")
X, L = dx.matrix("X", n, n), dx.matrix("L", n, n, "lower")
S, C = dx.matrix("S", n, n, "spd"), dx.matrix("C", n, n)
y, p, s = dx.vector("y", n), dx.vector("p", n, "positive"), dx.scalar("s", "positive")
t = dx.scalar("t", "positive")
ONES = np.ones((2, 2))


@pytest.mark.parametrize(
    ("function", "points", "text"),
    [
        (dx.function("invert", [X], dx.inv(X)), {"X": ONES}, r"inv\(X\): the matrix is singular"),
        (
            dx.function("nll", [S, C], dx.logdet(S) + dx.trace(dx.inv(S) @ C), wrt=[S]),
            {"S": -ONES, "C": ONES},
            r"(logdet|inv)\(S\): the matrix is not positive definite",
        ),
        (
            dx.function("solved", [X, y], dx.solve(X @ X.T, y), batch=[X]),
            {"X": np.stack([np.eye(2), ONES]), "y": np.ones(2)},
            r"inv\(.*X.*\): the matrix is singular",
        ),
        (
            dx.function("forward", [L, y], dx.solve(L, y)),
            {"L": np.diag([1.0, 0.0]), "y": np.ones(2)},
            r"inv\(L\): the matrix is singular",
        ),
        (
            dx.function("equation", [X, C], dx.solve_sylvester(X, -X, C)),
            {"X": np.eye(2), "C": ONES},
            r"solve_sylvester\(X.*\): the first .* share an eigenvalue",
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_linear_algebra_errors_name_the_operation(
    function: Function, points: dict[str, np.ndarray], text: str
) -> None:
    module = dx.compile(function)
    for kind in (module.FUNCTIONS[0], module.FUNCTIONS[-1]):
        arguments = [
            points.get(leaf.name, np.ones(numbers(leaf.shape, {"n": 2, "batch": 2})))
            for leaf in function.derivatives.arguments(kind)
        ]
        for _ in range(2):  # compiled for these arguments by the first call
            with pytest.raises(np.linalg.LinAlgError, match=f"^{function.name}: {text}$"):
                getattr(module, kind)(*arguments)


def test_a_kernel_that_fails_is_not_called_again() -> None:
    """Its error passes through; only after errors about arguments does the slow path call again,
    to report these in full."""
    module = dx.compile(dx.function("invert", [X], dx.inv(X)))
    module.value(np.eye(2))
    with pytest.raises(np.linalg.LinAlgError) as caught:
        module.value(ONES)
    raised = traceback.extract_tb(caught.value.__traceback__)[1]
    tried, _, _ = inspect.getsource(module.value).partition("except")
    assert raised.lineno - module.value.__code__.co_firstlineno <= tried.count("\n")


def test_kernels_take_contiguous_arrays_of_one_type() -> None:
    module = dx.compile(dx.function("invert", [X], dx.inv(X)))
    x, out = np.array([[4.0, 1.0], [2.0, 3.0]]), np.empty((2, 2))
    module.value_kernel(x, out)
    np.testing.assert_allclose(out, np.linalg.inv(x))
    for wrong in (x.T, np.repeat(x, 2, axis=1)[:, ::2]):
        with pytest.raises(ValueError, match=r"^invert: argument X of a kernel is .*C-contiguous"):
            module.value_kernel(wrong, out)
        with pytest.raises(ValueError, match=r"^invert: argument out of a kernel is .*C-contigu"):
            module.value_kernel(x, wrong)
    with pytest.raises(TypeError, match=r"^invert: .* different types \(float32, float64\)"):
        module.value_kernel(x.astype(np.float32), out)
    with pytest.raises(TypeError, match=r"^invert: argument X of a kernel is array\(int64"):
        module.value_kernel(x.astype(int), out)

    @numba.njit
    def inside(kernel, x, out):
        kernel(x, out)

    inside(module.value_kernel, x, out)
    with pytest.raises(ValueError, match="C-contiguous"):
        inside(module.value_kernel, x.T, out)


def test_numbers_in_single_precision() -> None:
    module = dx.compile(dx.function("numbers", [s, t], s**2 * t + dx.exp(s)))
    single, double = (np.float32(2), np.asarray(np.float32(3))), (2.0, 3)
    for kind in ("value", "gradient", "hessian"):
        assert {array.dtype.name for array in flat(getattr(module, kind)(*single))} == {"float32"}
        assert {array.dtype.name for array in flat(getattr(module, kind)(*double))} == {"float64"}
    assert module.vjp(*single, np.float32(1)).s.dtype == np.float32
    assert module.vjp(*single, 1.0).s.dtype == np.float64
    np.testing.assert_allclose(module.value(*single), module.value(*double), rtol=1e-6)


def test_arguments_that_fit_are_passed_on_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once kernels are compiled, arguments that fit skip the slow path: in both precisions, NumPy
    scalars too, with and without `out`."""
    module = dx.compile(dx.function("pair", [X, y], y @ X @ y))

    def used(real: type) -> None:
        x, v = np.eye(3, dtype=real), np.ones(3, real)
        assert module.value(x, v) == 3 and module.gradient(x, v).X.dtype == real
        total, both = np.empty((), real), module.Gradient(np.empty_like(x), np.empty_like(v))
        assert module.value(x, v, out=total) is total and total == 3
        assert module.gradient(x, v, out=both).y is both.y and both.y[0] == 2
        assert module.vjp(x, v, module.value(x, v)).y[0] == 6

    for real in (np.float64, np.float32):
        used(real)

    def refuse(*_: object) -> None:
        raise AssertionError

    set_everywhere(monkeypatch, module, "common.arguments._coerce", refuse)
    for real in (np.float64, np.float32):
        used(real)
    x, v, total = np.eye(3), np.ones(3), np.empty(())
    for wrong in (x, v.astype(np.float32), np.ones(6)[::2], v[:2], v.tolist(), 1.0, None):
        with pytest.raises(AssertionError):
            module.value(x, wrong)
    for overlapping in (v[:1].reshape(()), np.broadcast_to(total, ()), total.astype(np.float32)):
        with pytest.raises(AssertionError):
            module.value(x, v, out=overlapping)
    with pytest.raises(AssertionError):
        module.gradient(x, v, out=(np.empty_like(x), x[0]))
    assert (x == np.eye(3)).all() and (v == 1).all()


def test_kernels_of_more_than_thirty_arguments() -> None:
    """CPython passes so many as one tuple, and Numba inlines no function that is called so."""
    weights = [dx.vector(f"w{number}", "m") for number in range(16)]
    total = sum(weight @ weight for weight in weights)
    module = dx.compile(dx.function("many", weights, total))
    values = np.random.default_rng(0).normal(size=(16, 3))
    value, gradient = module.value_and_gradient(*values)
    np.testing.assert_allclose(value, (values**2).sum())
    np.testing.assert_allclose(gradient, 2 * values, rtol=1e-12)
    results = [*np.empty((16, 3))]
    results[5] = results[2]
    text = "^many: argument out_w5 of a kernel shares memory with another argument$"
    with pytest.raises(ValueError, match=text):
        module.gradient_kernel(*values, *results)


def test_kernels_refuse_wrong_shapes() -> None:
    """Wrong shapes would make kernels read or write beyond an array's end."""
    module = dx.compile(dx.function("pair", [X, y], y @ X @ y))
    x, v = np.eye(3), np.ones(3)

    def fails(text: str, *arrays: np.ndarray) -> None:
        with pytest.raises(ValueError, match=f"^pair: argument {text}$"):
            module.gradient_kernel(*arrays)

    fails("y of a kernel has another shape than expected", x, v[:2], x + 0, v + 0)
    fails("X of a kernel has another shape than expected", x[:2], v, x + 0, v + 0)
    fails("out_y of a kernel has another shape than expected", x, v, x + 0, np.ones(4))
    fails("out_X of a kernel shares memory with X", x, v, x, v + 0)
    both = np.empty((4, 3))
    fails("out_y of a kernel shares memory with out_X", x, v, both[:3], both[2])
    module.gradient_kernel(x, v, both[:3], both[3])
    assert both.tolist() == [[1, 1, 1]] * 3 + [[2, 2, 2]]
    module.gradient_kernel(x[:0, :0], v[:0], both[1:1, :0], both[2, :0])
    with pytest.raises(Exception, match="pair: argument y of a kernel has 2 axes; expected 1"):
        module.gradient_kernel(x, x, x + 0, v + 0)


def test_out_of_several_results() -> None:
    module = dx.compile(dx.function("pair", [X, y], y @ X @ y))
    x, v = np.arange(9.0).reshape(3, 3), np.arange(3.0)
    expected = module.gradient(x, v)

    def fails(error: type[Exception], text: str, *out: object) -> None:
        with pytest.raises(error, match=f"^pair: {text}$"):
            module.gradient(x, v, out=out)

    full, part = np.empty((3, 3)), np.empty(3)
    frozen = np.broadcast_to(0.0, (3,))
    fails(ValueError, r"out.y has shape \(2,\); expected \(3,\)", full, np.empty(2))
    fails(TypeError, "out.X has dtype int64; expected float64", full.astype(int), part)
    fails(TypeError, "out.y is 'text'; expected an array", full, "text")
    fails(ValueError, "out.y is read-only", full, frozen)
    fails(ValueError, "out has 1 arrays; expected 2: out.X, out.y", full)
    fails(ValueError, "out.X and out.y share memory", full, full[1])
    with pytest.raises(ValueError, match=r"^pair: out.gradient.y is read-only$"):
        module.value_and_gradient(x, v, out=(np.empty(()), (full, frozen)))

    whole = np.empty((3, 4))
    for out in ((whole[:, :3], whole[:, 3]), (x, v), (x.T, v)):
        np.copyto(x, np.arange(9.0).reshape(3, 3))
        np.copyto(v, np.arange(3.0))
        actual = module.gradient(x, v, out=out)
        assert actual.X is out[0] and actual.y is out[1]
        np.testing.assert_array_equal(actual.X, expected.X)
        np.testing.assert_array_equal(actual.y, expected.y)


GAMMAS = dx.gamma(p) * dx.gammaln(p) + dx.zeta(2.5, p) + dx.digamma(p) ** 2 + dx.polygamma(2, p)
BESSEL = dx.besseli(0, p) * dx.besselk(1, p) + dx.besselj(0, p) * dx.bessely(2, p)
SPECIAL = [
    dx.function("gammas", [p], dx.sum(GAMMAS)),
    dx.function("bessel", [p], dx.sum(BESSEL)),
    dx.function("probit", [y], dx.sum(dx.erfinv(dx.tanh(y) / 2)) + dx.logaddexp(y[0], y[1])),
]


@pytest.mark.parametrize("function", SPECIAL, ids=lambda function: function.name)
def test_special_functions(function: Function) -> None:
    report = dx.verify(dx.compile(function))
    assert report.passed, str(report)


def test_formulas_of_special_functions() -> None:
    x = dx.scalar("x")
    gradient = dx.function("f", [x], dx.gammaln(x)).formula
    assert gradient("gradient") == "digamma(x)"
    assert gradient("gradient", style="numpy") == "scipy.special.digamma(x)"
    assert gradient("hessian", style="numpy") == "scipy.special.polygamma(1, x)"
    bessel = dx.function("f", [x], dx.besseli(0, x)).formula
    assert bessel("gradient", style="numpy") == "scipy.special.iv(1, x)"
    assert bessel("hessian") == "½ besseli(0, x) + ½ besseli(2, x)"
    assert dx.function("f", [y], scipy.special.psi(y)).formula("value") == "digamma(y)"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (sympy.Si(2 * sympy.Symbol("s")) + 1, r"Si\(x\): no kernel computes the function Si"),
        (sympy.Function("f")(sympy.Symbol("s")), r"f\(x\): no kernel computes the function f"),
        (dx.besseli(s, 2.0), r"besseli\(x, 2\): the first argument of besseli has to be a number"),
        (dx.polygamma(0.5, s), r"polygamma\(1/2, x\): no kernel computes"),
    ],
)
def test_functions_without_a_kernel_are_refused_when_declared(
    expression: object, text: str
) -> None:
    with pytest.raises(UnsupportedError, match=f"^bad: {text}"):
        dx.function("bad", [s], expression)


def test_logaddexp_at_infinity() -> None:
    a, b = dx.vector("a", n), dx.vector("b", n)
    module = dx.compile(dx.function("adding", [a, b], dx.logaddexp(a, b)))
    inf = np.inf
    x = np.array([-inf, -inf, 0.0, inf, inf, np.nan, -800.0, 3.0])
    z = np.array([-inf, 1.0, -inf, inf, -inf, 0.0, 800.0, 3.0])
    with np.errstate(invalid="ignore"):
        expected = np.logaddexp(x, z)
    np.testing.assert_allclose(module.value(x, z), expected, rtol=1e-15)
    pulled = module.vjp(x, z, np.ones(8))
    np.testing.assert_array_equal(pulled.a[[1, 2, 4, 6, 7]], [0, 1, 1, 0, 0.5])


def test_value_and_gradient_returns_the_gradients_type() -> None:
    A, b = dx.matrix("A", "n", "n"), dx.vector("b", "n")
    module = dx.compile(dx.function("quadratic", [A, b], b @ A @ b))
    result = module.value_and_gradient(np.eye(3), np.ones(3))
    assert type(result.gradient) is type(module.gradient(np.eye(3), np.ones(3)))
    assert not hasattr(module, "ValueAndGradientRow")


class Metres(np.ndarray):
    """Numbers with a unit."""


class Duck:
    """An array of some other package, with a unit."""

    unit = "m"

    def __array__(self, dtype=None, copy=None):
        return np.ones(3)


MORE = {
    "masked": np.ma.array(np.ones(3), mask=[0, 1, 0]),
    "without a mask": np.ma.array(np.ones(3)),
    "masked within a list": [1.0, np.ma.masked, 1.0],
    "subclass": np.ones(3).view(Metres),
    "duck": Duck(),
}


@pytest.mark.parametrize("kind", MORE)
def test_arrays_that_say_more_than_their_numbers_are_refused(kind):
    """Also where the kernel is compiled for arrays: Numba takes a subclass for its numbers."""
    n = dx.dims("n")
    v, s = dx.vector("v", n), dx.scalar("s")
    module = dx.compile(dx.function("says_more", [v, s], s * v * v))
    plain = np.ones(3)
    module.value(plain, 2.0)
    module.vjp(plain, 2.0, plain)
    for call in (
        lambda: module.value(MORE[kind], 2.0),
        lambda: module.vjp(plain, 2.0, MORE[kind]),
        lambda: module.value(plain, 2.0, out=MORE[kind]),
    ):
        with pytest.raises((TypeError, ValueError), match=r"says more than its numbers|out has 3"):
            call()
    with pytest.raises(TypeError):
        dx.constant(MORE[kind])
    with pytest.raises(TypeError):
        v * MORE[kind]


def test_factors_of_sizes_are_computed_once() -> None:
    n, m = dx.dims("n m")
    c0, x = dx.matrix("c0", n, m), dx.vector("x", m)
    mean = dx.function("mean", [c0, x], dx.sum(dx.exp(c0 * x)) / n)
    text = generate(mean).text
    body = text[text.index("def vjp_kernel") : text.index("def jvp_kernel")]
    assert body.count("float(n)") == 1 and "    c1 = out_c0.dtype.type(1/float(n))\n" in body


def test_scalars_and_constants_say_numbers_alone():
    n = dx.dims("n")
    v, s = dx.vector("v", n), dx.scalar("s")
    module = dx.compile(dx.function("says_more", [v, s], s * v * v))
    with pytest.raises(TypeError, match="argument s is MaskedConstant"):
        module.value(np.ones(3), np.ma.masked)
    with pytest.raises(dx.UnsupportedError, match="another product"):
        dx.constant(np.matrix([[1.0]]))
    assert module.value(np.ones(3).view(np.memmap), 2.0).tolist() == [2, 2, 2]


def test_whole_arrays_are_copied_at_once() -> None:
    """But not constants, which are doubles in kernels of singles, too."""
    assert "copy_entries(X, " in generate(dx.function("solved", [X, y], dx.solve(X, y))).text
    constant, v = np.random.default_rng(0).normal(size=(12, 12)), dx.vector("v", 12)
    constant_map = dx.function("constant_map", [v], constant @ v)
    assert "copy_entries" not in generate(constant_map).text
    jacobian = dx.compile(constant_map).jacobian(np.ones(12, np.float32))
    np.testing.assert_allclose(jacobian, constant, rtol=1e-6)


@pytest.mark.parametrize("name", ["where", "bilinear", "elementwise", "hadamard", "nll"])
def test_lines_are_short(name: str) -> None:
    (case,) = (case for case in CASES if case.name == name)
    lines = generate(case).text.splitlines()
    assert not [line for line in lines if len(line) > 100]


def test_kernels_say_their_formula_on_one_line() -> None:
    S = dx.matrix("S", n, n, "spd")
    text = generate(dx.function("factor", [S], dx.cholesky(S), kinds=["vjp"])).text
    assert '"""S̄ = ½ L⁻ᵀ (T₁ + T₁ᵀ) L⁻¹  where L = chol(S), T₁ = Φ(Lᵀ Ȳ)"""' in text


def test_a_loop_that_is_its_formula_has_no_comment() -> None:
    A, B = dx.matrix("A", n, n), dx.matrix("B", n, n)
    text = generate(dx.function("f", [A, B], dx.tanh(A) * B.T, kinds=["value"])).text
    assert "out[i, j] = B[j, i] * fast_tanh(A[i, j])" in text and "# out" not in text


def test_numbers_beyond_the_range_of_float64() -> None:
    x = dx.vector("x", n)
    function = dx.function("f", [x], 10**200 * (-(10**200) * x), kinds=["value"])
    assert "np.inf" in (text := generate(function).text) and "real(inf)" not in text
    assert (dx.compile(function).value(np.ones(2)) == -np.inf).all()
