"""Products of entries where entries are zero: derivatives of every order against enumeration."""

from itertools import product

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.ir.interpret import evaluate

n = dx.dims("n")
x, X = dx.vector("x", n), dx.matrix("X", n, 3)


def enumerated(at: np.ndarray, order: int) -> np.ndarray:
    """The derivative by entries i, j, ... is the product of the others, 0 where two are equal."""
    result = np.zeros((len(at),) * order)
    for entries in product(range(len(at)), repeat=order):
        if len(set(entries)) == order:
            result[entries] = np.delete(at, entries).prod()
    return result


@pytest.mark.parametrize("at", [[2.0, -3, 0.5, 4], [2.0, 0, 0.5, 4], [0.0, 3, 0, 4], [0.0] * 4])
def test_derivatives_where_entries_are_zero(at: list[float]) -> None:
    function = dx.function("f", [x], dx.prod(x))
    values = {"x": np.array(at), "tangent": np.array([1.0, 2, -1, 3])}
    for order in (1, 2, 3):
        actual = evaluate(function.derivative(*"x" * order).expression, values, {"n": 4})
        np.testing.assert_allclose(actual, enumerated(values["x"], order), atol=1e-13)
    hvp = evaluate(function.derivatives.results("hvp")[("x",)], values, {"n": 4})
    np.testing.assert_allclose(hvp, enumerated(values["x"], 2) @ values["tangent"], atol=1e-13)


def test_products_along_an_axis() -> None:
    function = dx.function("f", [X], X.prod(axis=1, keepdims=True) * np.prod(X, axis=0))
    at = np.arange(6.0).reshape(2, 3)
    direction = np.array([[1.0, -2, 3], [0, 1, 2]])

    def value(step: float) -> np.ndarray:
        moved = at + step * direction
        return moved.prod(1, keepdims=True) * moved.prod(0)

    jacobian = evaluate(function.derivatives.results("jacobian")[("X",)], {"X": at}, {"n": 2})
    expected = (8 * (value(1e-3) - value(-1e-3)) - (value(2e-3) - value(-2e-3))) / 12e-3
    np.testing.assert_allclose(np.tensordot(jacobian, direction, 2), expected, atol=1e-8)


def test_formulas() -> None:
    function = dx.function("f", [x], dx.prod(x))
    assert function.formula("gradient") == "∇prod(x)"
    assert function.formula("value", style="latex") == r"\prod\left(x\right)"


def test_the_product_of_eigenvalues_where_they_are_equal() -> None:
    S = dx.matrix("S", n, n, "symmetric")
    function = dx.function("f", [S], dx.prod(dx.eigvalsh(S)))
    values = {"S": 2 * np.eye(3), "tangent": np.diag([1.0, 2.0, 3.0])}
    actual = evaluate(function.derivatives.results("hvp")["S",], values, {"n": 3})
    np.testing.assert_allclose(actual, np.diag([10.0, 8.0, 6.0]))
    assert function.formula("value") == "det(S)"
    stacked = dx.function("g", [S], dx.sum(dx.prod(dx.eigvalsh(S))), batch=[S])
    assert "prod" not in stacked.formula("value")
