"""The derivative of a determinant where there is no inverse: the adjugate, made of cofactors."""

from __future__ import annotations

import numpy as np
import pytest

import derivatrix as dx

n = dx.dims("n")
X, F = dx.matrix("X", n, n), dx.matrix("F", 4, 4)
DETERMINANT = dx.compile(dx.function("f", [X], dx.det(X)))


def cofactors(matrix: np.ndarray) -> np.ndarray:
    found = np.empty_like(matrix)
    for i, j in np.ndindex(matrix.shape):
        rest = np.delete(np.delete(matrix, i, 0), j, 1)
        found[i, j] = (-1) ** (i + j) * np.linalg.det(rest)
    return found


def of_rank(size: int, rank: int) -> np.ndarray:
    random = np.random.default_rng(size)
    return random.normal(size=(size, rank)) @ random.normal(size=(rank, size))


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 12])
def test_gradients_of_determinants_at_singular_matrices(size: int, lost: int) -> None:
    matrix = of_rank(size, max(0, size - lost))
    expected = cofactors(matrix)
    scale = np.linalg.norm(matrix, 2) ** (size - 1)
    gradient = DETERMINANT.gradient(matrix)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-12 * scale)
    tangent = np.random.default_rng(1).normal(size=matrix.shape)
    along = DETERMINANT.jvp(matrix, tangent)
    np.testing.assert_allclose(along, np.sum(expected * tangent), rtol=0, atol=1e-11 * scale)
    narrow = DETERMINANT.gradient(matrix.astype(np.float32))
    np.testing.assert_allclose(narrow, expected, rtol=0, atol=1e-4 * scale)


def test_powers_and_batches() -> None:
    """Written out for a literal size, too."""
    matrices = np.stack([of_rank(4, rank) for rank in (4, 3, 2)])
    expected = np.stack([cofactors(matrix) for matrix in matrices])
    squared = dx.compile(dx.function("g", [X], dx.det(X) ** 2, batch=["X"]))
    written = dx.compile(dx.function("h", [F], dx.det(F), batch=["F"]))
    factors = 2 * np.linalg.det(matrices)[:, None, None]
    np.testing.assert_allclose(squared.gradient(matrices), factors * expected, atol=1e-11)
    np.testing.assert_allclose(written.gradient(matrices), expected, atol=1e-12)


def test_formulas_are_those_of_books() -> None:
    function = dx.function("f", [X], dx.det(X))
    assert function.formula("gradient") == "det(X) X⁻ᵀ"
    assert dx.function("f", [X], dx.adjugate(X)).formula("value") == "adj(X)"


def test_second_derivatives_need_an_inverse() -> None:
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        DETERMINANT.hessian(np.zeros((3, 3)))


def test_determinants_are_verified_where_single_precision_has_no_such_numbers() -> None:
    assert dx.verify(DETERMINANT).passed
