"""Small matrices written out entry by entry: the rules with NumPy's numbers, kernels as modules."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.special
import sympy

import derivatrix as dx
from derivatrix.compiler.differentiate.derivatives import Derivatives
from derivatrix.compiler.driver.pipeline import generate, kernel_plan
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.operation import OPERATIONS, Operation
from derivatrix.compiler.operations import unrolled
from derivatrix.compiler.plan import plan
from derivatrix.compiler.plan.steps import Allocate, Loop, LoopNest
from tests.plain import run_plain, steps_of

STRUCTURES = ("", "spd", "lower", "upper")


class Numbers:
    """The algebra of NumPy's numbers; `wanting` collects the requirements that do not hold."""

    def __init__(self) -> None:
        self.wanting: list[str] = []

    def number(self, value: float) -> float:
        return value

    def sqrt(self, x: float) -> float:
        return np.sqrt(x)

    def exp(self, x: float) -> float:
        return np.exp(x)

    def log(self, x: float) -> float:
        return np.log(x)

    def absolute(self, x: float) -> float:
        return abs(x)

    def maximum(self, x: float, y: float) -> float:
        return np.maximum(x, y)

    def greater(self, x: float, y: float) -> bool:
        return x > y

    def choose(self, condition: bool, x: float, y: float) -> float:
        return x if condition else y

    def require(self, kind: str, x: float) -> None:
        if not (x > 0 if kind == "positive" else x != 0):
            self.wanting.append(kind)


def matrix(n: int, structure: str) -> np.ndarray:
    a = np.random.default_rng(n).normal(size=(n, n))
    made = {"spd": a @ a.T + np.eye(n), "lower": np.tril(a), "upper": np.triu(a)}
    return made.get(structure, a)


def entries(a: np.ndarray) -> np.ndarray:
    """An array of objects, which are NumPy's numbers: they divide by zero as kernels do."""
    made = np.empty(a.shape, object)
    for place in np.ndindex(a.shape):
        made[place] = a[place]
    return made


def apply(rule: unrolled.Unrolled, a: np.ndarray, structure: str = "") -> np.ndarray:
    with np.errstate(all="ignore"):
        (result,) = rule(Numbers(), [entries(a)], [frozenset({structure})])
    return result.astype(float)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("n", range(1, 7))
def test_inverses_and_determinants(n: int, structure: str) -> None:
    a = matrix(n, structure)
    sign, logarithm = np.linalg.slogdet(a)
    np.testing.assert_allclose(
        apply(unrolled.inverse, a, structure), np.linalg.inv(a), 1e-10, 1e-12
    )
    np.testing.assert_allclose(apply(unrolled.determinant, a, structure), np.linalg.det(a), 1e-10)
    np.testing.assert_allclose(
        apply(unrolled.log_absolute_determinant, a, structure), logarithm, 1e-10
    )
    np.testing.assert_allclose(
        apply(unrolled.log_determinant, a, structure),
        logarithm if sign > 0 else np.nan,
        1e-10,
    )


def test_pivots_are_exchanged() -> None:
    a = np.array([[0.0, 2, 1], [1, 0, 0], [3, 0, 1]])
    np.testing.assert_allclose(apply(unrolled.inverse, a), np.linalg.inv(a), atol=1e-15)
    np.testing.assert_allclose(apply(unrolled.determinant, a), np.linalg.det(a))


@pytest.mark.parametrize("structure", ("", "lower"))
def test_singular_matrices(structure: str) -> None:
    a = np.array([[1.0, 0], [2, 0]])
    numbers = Numbers()
    with np.errstate(all="ignore"):
        unrolled.inverse(numbers, [entries(a)], [frozenset({structure})])
    assert numbers.wanting == ["nonzero"]
    assert apply(unrolled.determinant, a, structure) == 0
    assert apply(unrolled.log_determinant, a, structure) == -np.inf
    assert apply(unrolled.log_absolute_determinant, a, structure) == -np.inf


def test_what_is_not_definite() -> None:
    numbers = Numbers()
    with np.errstate(all="ignore"):
        unrolled.cholesky(numbers, [entries(np.array([[1.0, 2], [2, 1]]))], [frozenset()])
    assert numbers.wanting == ["positive"]


@pytest.mark.parametrize("n", range(1, 7))
def test_cholesky_and_its_half(n: int) -> None:
    a = matrix(n, "spd")
    np.testing.assert_allclose(apply(unrolled.cholesky, a), np.linalg.cholesky(a), 1e-12)
    half = np.tril(a, -1) + np.diag(np.diag(a)) / 2
    np.testing.assert_allclose(apply(unrolled.half_lower, a), half)


@pytest.mark.parametrize(
    "x", [[0.0], [1.0, 2, 3], [1000.0, 999], [-np.inf, 1], [-np.inf, -np.inf], [np.nan, 1]]
)
def test_softmax_and_logsumexp(x: list[float]) -> None:
    row = np.array(x)
    with np.errstate(all="ignore"):
        total = scipy.special.logsumexp(row)
        np.testing.assert_allclose(apply(unrolled.logsumexp, row), total)
        np.testing.assert_allclose(apply(unrolled.softmax, row), scipy.special.softmax(row))


WRITTEN_OUT = [operation for operation in OPERATIONS.values() if operation.unrolled]


@pytest.mark.parametrize("operation", WRITTEN_OUT, ids=lambda operation: operation.name)
def test_rules_compute_the_value(operation: Operation) -> None:
    random = np.random.default_rng(0)
    arguments = [random.normal(size=(3,) * rank) for rank in operation.ranks]
    arguments = [a + 9 * np.eye(3) if a.ndim == 2 else a for a in arguments]
    assert operation.unrolled is not None
    actual = operation.unrolled(Numbers(), list(map(entries, arguments)), [frozenset()])
    for array, expected in zip(actual, operation.value(arguments, ()), strict=True):
        np.testing.assert_allclose(array.astype(float), expected, rtol=1e-10, atol=1e-14)


def planned(function: dx.Function, kind: str) -> list[LoopNest]:
    steps = steps_of(function, kind)
    assert all(isinstance(step, LoopNest | Allocate) for step in steps)
    return [step for step in steps if isinstance(step, LoopNest)]


m = dx.dims("m")
x, W, t = dx.vector("x", 3), dx.matrix("W", 2, 3), dx.scalar("t")
A, S = dx.matrix("A", 3, 3), dx.matrix("S", 3, 3, "spd")
v = dx.vector("v", m)
FUNCTIONS = (
    dx.function("inverse", [A], dx.inv(A), batch=[A]),
    dx.function("shared", [x, W], dx.tanh(W @ x), batch=[x]),
    dx.function("normalised", [v], v / dx.norm(v)),
    dx.function("likelihood", [S, x], dx.logdet(S) + x @ dx.solve(S, x), batch=[x]),
    dx.function("determinants", [A], dx.det(A) + dx.logabsdet(A)),
    dx.function("classes", [x, W], dx.logsumexp(W @ x) + dx.softmax(W @ x)[0], batch=[x]),
    dx.function("factor", [S], dx.cholesky(S)),
    dx.function("several", [t, x], dx.exp(t * x), batch=[t]),
    dx.function("crossed", [x, A], dx.skew(A @ x) @ x, batch=[x]),
)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_kernels_are_one_nest(function: dx.Function) -> None:
    for kind in Derivatives(function).kinds:
        if not (function.name == "normalised" and kind == "jacobian"):
            assert len(planned(function, kind)) == 1


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(function, marks=pytest.mark.thorough)
        if function.name in ("likelihood", "determinants", "classes", "factor", "several", "shared")
        else function
        for function in FUNCTIONS
    ],
    ids=lambda function: function.name,
)
def test_modules(function: dx.Function) -> None:
    report = dx.verify(dx.compile(function))
    assert report.passed, str(report)


def test_a_total_is_known_after_its_loop() -> None:
    (nest,) = planned(dx.function("f", [v], v / dx.norm(v)), "value")
    assert sum(isinstance(statement, Loop) for statement in nest.body) == 2


def test_functions_are_not_computed_again_in_a_later_loop() -> None:
    f = dx.function("f", [v], dx.tanh(v) / dx.sum(dx.tanh(v)))
    steps = kernel_plan(Derivatives(f), "value").steps
    assert len(steps) > 1


def test_rows_are_exchanged_without_branches() -> None:
    """Numba takes long to compile many."""
    for target in ("cpu", "cuda"):
        text = generate(FUNCTIONS[0], target).text
        kernel = text.partition("def value_kernel")[2].partition("\n@")[0]
        assert ("where(", "cuda.selp(")[target == "cuda"] in kernel
        assert not re.search(r"\belse\b", kernel)


def test_large_arrays_are_left_to_loops_and_blas() -> None:
    big = dx.matrix("B", 40, 40)
    steps = kernel_plan(Derivatives(dx.function("f", [big], big @ big)), "value").steps
    assert not any(isinstance(step, LoopNest) for step in steps)


def test_a_constant_that_each_sample_has_an_entry_of() -> None:
    size = dx.dims("m")
    x = ir.Leaf("x", (size,))
    taken = ir.Slice(size, sympy.Integer(2), sympy.Integer(0), 1)
    node = ir.einsum([(taken, "mj"), (ir.Constant([3.0, 5.0]), "j"), (x, "m")], "m")
    made, out = plan("kernel", [x], [("out", node)]), np.full(2, np.nan)
    run_plain(made, {"x": np.array([2.0, 7.0])}, [out])
    np.testing.assert_array_equal(out, [6, 35])


def test_failures_name_the_operation() -> None:
    module = dx.compile(FUNCTIONS[0])
    with pytest.raises(np.linalg.LinAlgError, match=r"inverse: inv\(A.*the matrix is singular"):
        module.value(np.zeros((2, 3, 3)))
    assert module.value(np.zeros((0, 3, 3))).shape == (0, 3, 3)


ENTRIES = dx.vector("x", dx.dims("n"))
SQUARE, FOURTH = ENTRIES @ ENTRIES, dx.sum(ENTRIES**4)


@pytest.mark.parametrize(
    "expression",
    [
        dx.sqrt(SQUARE / (1 + SQUARE)),
        ENTRIES * dx.sqrt(SQUARE / (1 + SQUARE)),
        dx.arcsin(dx.sqrt(SQUARE / (1 + SQUARE))),
        ENTRIES * dx.sqrt(SQUARE * FOURTH),
        ENTRIES * dx.sqrt(SQUARE / FOURTH),
        ENTRIES * dx.sqrt(3 * SQUARE),
        dx.sqrt(SQUARE / 2 + dx.sum(ENTRIES**2 * dx.exp(ENTRIES)) / 3),
    ],
)
def test_roots_of_functions_of_sums(expression: dx.Array) -> None:
    """Beyond the range of numbers a root takes scaled terms of a sum, not those of a part of it."""
    function = dx.function("f", [ENTRIES], expression)
    values = {"x": np.array([0.3, 0.2, -0.4])}
    (node,) = function.derivatives.batched("value").values()
    expected = evaluate(node, values, {"n": 3})
    result = np.full(expected.shape, np.nan)
    run_plain(kernel_plan(function.derivatives, "value"), values, [result])
    np.testing.assert_allclose(result, expected, rtol=1e-14)
