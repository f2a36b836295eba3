"""Entries at positions that are data."""

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.ir.interpret import evaluate

n, m, k = dx.dims("n m k")
X, T, x, i = dx.matrix("X", n, m), dx.tensor("T", 2, n, m), dx.vector("x", n), dx.vector("i", k)
J = dx.matrix("J", k, 2)
SIZES = {"n": 4, "m": 3, "k": 5}
POSITIONS = np.array([0, 2, 2, -1, 7.9])
VALUES = {
    "X": np.random.default_rng(0).normal(size=(4, 3)),
    "T": np.random.default_rng(1).normal(size=(2, 4, 3)),
    "x": np.arange(4.0),
    "i": POSITIONS,
    "J": np.stack([POSITIONS, POSITIONS + 1], 1),
}


@pytest.mark.parametrize(
    ("array", "name", "axis"),
    [
        (X[i], "X", 0),
        (x[i], "x", 0),
        (dx.take(X, i, 1), "X", 1),
        (np.take(T, i, 1), "T", 1),
        (dx.take(X, i), "X", None),
    ],
)
def test_values(array, name, axis):
    expected = np.take(VALUES[name], np.floor(POSITIONS).astype(int), axis, mode="wrap")
    np.testing.assert_array_equal(evaluate(array.node, VALUES, SIZES), expected)


def test_tables_of_positions():
    expected = np.take(VALUES["T"], np.floor(VALUES["J"]).astype(int), 1, mode="wrap")
    np.testing.assert_array_equal(evaluate(dx.take(T, J, 1).node, VALUES, SIZES), expected)


def test_derivatives():
    function = dx.function("f", [X, i], dx.exp(X[i]), wrt=[X])
    assert function.formula("vjp") == "sums_at(Ȳ ⊙ exp(X[i]), i, 𝟏)"
    assert function.requirements == ("n >= 1",)
    module = dx.compile(function)
    cotangent = np.ones((5, 3))
    slopes = np.exp(VALUES["X"]) * np.array([1, 0, 2, 2])[:, None]
    np.testing.assert_allclose(module.vjp(VALUES["X"], POSITIONS, cotangent), slopes)
    broken = module.value(VALUES["X"], np.array([np.nan, np.inf]))
    assert np.isnan(broken).all()
    nowhere = module.vjp(VALUES["X"], np.array([0.0, np.nan]), np.ones((2, 3)))
    assert np.isnan(nowhere).all()


def test_derivatives_by_positions_are_zero():
    function = dx.function("f", [X, i], dx.sum(X[i] ** 2))
    assert function.formula("gradient", wrt=i) == "0"


@pytest.mark.parametrize(
    "take",
    [
        lambda: x[x > 0],
        lambda: X[~(X > 0)],
        lambda: np.take(x, (x > 0) & (x < 1)),
        lambda: dx.take(X, (x > 0) * (x < 1), 0),
    ],
)
def test_conditions_select_no_entries(take):
    """As positions they would be 0 and 1; in NumPy they choose entries."""
    with pytest.raises(dx.UnsupportedError, match=r"is a condition.*where\(condition, x, 0\)"):
        take()


def test_indicators_of_literal_entries_are_positions():
    table = dx.asarray([0, 1, 1])
    np.testing.assert_array_equal(evaluate(x[table].node, VALUES, SIZES), [0, 1, 1])
