"""Cross products, distances of rows, and triangular systems, as NumPy and SciPy have them."""

from pathlib import Path

import numpy as np
import pytest
import scipy
from scipy.spatial.distance import cdist

import derivatrix as dx
from derivatrix.compiler.ir.interpret import evaluate

n, m, k = dx.dims("n m k")
A, B = dx.matrix("A", n, 3), dx.matrix("B", 3, n)
X, Y = dx.matrix("X", n, k), dx.matrix("Y", m, k)
S, R, b = dx.matrix("S", n, n), dx.matrix("R", n, m), dx.vector("b", n)
RANDOM = np.random.default_rng(0)
SIZES = {"n": 4, "m": 5, "k": 3}
VALUES = {
    "A": RANDOM.normal(size=(4, 3)),
    "B": RANDOM.normal(size=(3, 4)),
    "X": RANDOM.normal(size=(4, 3)),
    "Y": RANDOM.normal(size=(5, 3)),
    "S": RANDOM.normal(size=(4, 4)),
    "R": RANDOM.normal(size=(4, 5)),
    "b": RANDOM.normal(size=4),
}


def value(array):
    return evaluate(array.node, VALUES, SIZES)


def test_cross_products():
    a, b = VALUES["A"], VALUES["B"]
    np.testing.assert_allclose(value(dx.cross(A, B.T)), np.cross(a, b.T))
    np.testing.assert_allclose(value(np.cross(A, B[:, 0])), np.cross(a, b[:, 0]))
    np.testing.assert_allclose(value(np.cross(A.T, B, axis=0)), np.cross(a.T, b, axis=0))
    w, v = dx.vector("w", 3), dx.vector("v", 3)
    assert dx.function("f", [w, v], dx.cross(w, v)).formula("value") == "skew(w) v"
    with pytest.raises(dx.ShapeError, match="3 entries"):
        dx.cross(b, b)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cityblock"])
def test_distances(metric):
    distances = dx.cdist(X, Y, metric)
    np.testing.assert_allclose(value(distances), cdist(VALUES["X"], VALUES["Y"], metric))


def test_distances_of_equal_and_close_rows():
    module = dx.compile(dx.function("f", [X, Y], dx.sum(dx.cdist(X, Y))))
    rows = RANDOM.normal(size=(4, 3))
    assert module.value(rows[:1], rows[:1]) == 0
    assert not module.gradient(rows[:1], rows[:1]).X.any()
    np.testing.assert_allclose(module.value(rows[:1], rows[:1] + 1e-12), 3**0.5 * 1e-12, rtol=1e-3)


def test_wrong_distances_are_refused():
    with pytest.raises(dx.ShapeError, match="as many columns"):
        dx.cdist(X, R)
    with pytest.raises(dx.UnsupportedError, match="cosine"):
        dx.cdist(X, Y, "cosine")


@pytest.mark.parametrize("trans", [0, 1, "T"])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("unit_diagonal", [False, True])
@pytest.mark.parametrize("right", [R, b], ids=["matrix", "vector"])
def test_triangular_systems(trans, lower, unit_diagonal, right):
    options = {"trans": trans, "lower": lower, "unit_diagonal": unit_diagonal}
    solution = dx.solve_triangular(S, right, **options)
    expected = scipy.linalg.solve_triangular(VALUES["S"], VALUES[right.node.name], **options)
    np.testing.assert_allclose(value(solution), expected, rtol=1e-9)


def test_kernels_of_triangular_systems():
    L = dx.matrix("L", n, n, "lower")
    solve = dx.function("f", [L, R], dx.solve_triangular(L, R, lower=True))
    assert solve.formula("value") == "L⁻¹ R"
    module = dx.compile(solve)
    text = Path(module.__file__).read_text("utf-8")
    assert "triangular_solve" in text and "lu_" not in text
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        module.value(np.zeros((2, 2)), np.ones((2, 1)))


def test_wrong_triangular_systems_are_refused():
    with pytest.raises(dx.UnsupportedError, match="trans"):
        dx.solve_triangular(S, b, trans=3)
    with pytest.raises(dx.ShapeError, match="square"):
        dx.solve_triangular(R, b)
