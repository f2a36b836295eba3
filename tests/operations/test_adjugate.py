"""The derivatives of a determinant where there is no inverse: the adjugate, made of cofactors, and
its derivative, compared with differences in 50 digits."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.nodes import topological
from derivatrix.compiler.simplify import adjugates
from tests.campaign.mutations.compiled import passes
from tests.identities import Identity

n = dx.dims("n")
X, F = dx.matrix("X", n, n), dx.matrix("F", 4, 4)
S = dx.matrix("S", n, n, "symmetric")


@pytest.fixture(scope="module")
def determinant() -> Any:
    return dx.compile(dx.function("f", [X], dx.det(X)))


def cofactors(matrix: np.ndarray) -> np.ndarray:
    result = np.empty_like(matrix)
    for i, j in np.ndindex(matrix.shape):
        rest = np.delete(np.delete(matrix, i, 0), j, 1)
        result[i, j] = (-1) ** (i + j) * np.linalg.det(rest)
    return result


def of_rank(size: int, rank: int) -> np.ndarray:
    random = np.random.default_rng(size)
    return random.normal(size=(size, rank)) @ random.normal(size=(rank, size))


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 12])
def test_gradients_of_determinants_at_singular_matrices(
    determinant: Any, size: int, lost: int
) -> None:
    matrix = of_rank(size, max(0, size - lost))
    expected = cofactors(matrix)
    scale = np.linalg.norm(matrix, 2) ** (size - 1)
    gradient = determinant.gradient(matrix)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-12 * scale)
    tangent = np.random.default_rng(1).normal(size=matrix.shape)
    along = determinant.jvp(matrix, tangent)
    np.testing.assert_allclose(along, np.sum(expected * tangent), rtol=0, atol=1e-11 * scale)
    narrow = determinant.gradient(matrix.astype(np.float32))
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


def second(
    function: Callable[[mpmath.matrix], mpmath.mpf], matrix: np.ndarray, *steps: np.ndarray
) -> float:
    """The second derivative along two steps, by differences in 50 digits."""
    a, b = (mpmath.matrix(step.tolist()) * mpmath.mpf("1e-15") for step in steps)
    here = mpmath.matrix(matrix.tolist())
    corners = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    total = sum(i * j * function(here + i * a + j * b) for i, j in corners)
    return float(total / 4 * mpmath.mpf("1e30"))


SECOND = {
    "det": (dx.det(X), mpmath.det),
    "square": (dx.det(X) ** 2, lambda x: mpmath.det(x) ** 2),
    "sine": (dx.sin(dx.det(X)), lambda x: mpmath.sin(mpmath.det(x))),
    "of a product": (dx.det(X @ X.T + 2 * X), lambda x: mpmath.det(x * x.T + 2 * x)),
    "symmetric": (dx.det(S), mpmath.det),
    "written out": (dx.det(F), mpmath.det),
}


def pushed(module: Any, matrix: np.ndarray, *steps: np.ndarray) -> float:
    """The second derivative along two steps: the Hessian's, if that and the HVP agree."""
    hessian, product = module.hessian(matrix), module.hvp(matrix, steps[0])
    scale = max(1.0, np.linalg.norm(matrix, 2) ** (2 * len(matrix)))
    tolerance = 1e-10 if matrix.dtype == np.float64 else 1e-3
    expected = np.einsum("ijkl,kl->ij", hessian, steps[0])
    np.testing.assert_allclose(product, expected, rtol=0, atol=tolerance * scale)
    return float(np.einsum("ijkl,ij,kl->", hessian, *steps[::-1]))


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_at_singular_matrices(name: str) -> None:
    """Second derivatives of det are zero below rank n - 2, and not at it."""
    expression, exact = SECOND[name]
    (leaf,) = [array for array in (X, S, F) if array.node in topological([expression.node])]
    module = dx.compile(dx.function("f", [leaf], expression))
    with mpmath.workdps(50):
        for size, lost in itertools.product([4] if leaf is F else [2, 3, 5], range(4)):
            matrix = of_rank(size, max(0, size - lost)) / size
            steps = np.random.default_rng(7).normal(size=(2, size, size))
            if leaf is S:
                matrix, steps = matrix @ matrix.T, steps + steps.swapaxes(1, 2)
            expected = second(exact, matrix, *steps)
            assert name != "det" or (abs(expected) > 1e-6) == (min(lost, size) <= 2)
            scale = 1e-10 * max(1.0, abs(expected))
            np.testing.assert_allclose(pushed(module, matrix, *steps), expected, atol=scale)
            if name == "det":
                narrow = [array.astype(np.float32) for array in (matrix, *steps)]
                np.testing.assert_allclose(pushed(module, *narrow), expected, atol=1e7 * scale)


def test_second_derivatives_of_batches() -> None:
    matrices = np.stack([of_rank(4, rank) for rank in (4, 3, 2, 1)])
    tangents = np.random.default_rng(2).normal(size=matrices.shape)
    single = dx.compile(dx.function("f", [X], dx.det(X)))
    stacked = dx.compile(dx.function("g", [X], dx.det(X), batch=["X"]))
    expected = [single.hvp(*pair) for pair in zip(matrices, tangents, strict=True)]
    np.testing.assert_allclose(stacked.hvp(matrices, tangents), expected, atol=1e-11)


T = dx.matrix("T", 3, 3)
OPERATORS = {
    "det": dx.det(X),
    "square": dx.det(X) ** 2,
    "times a trace": dx.det(X) * dx.trace(X),
    "of a product": dx.det(X @ X.T + 2 * X),
    "symmetric": dx.det(S),
    "written out": dx.det(T),
    "adjugate": dx.adjugate(X),
}


@pytest.mark.parametrize("real", [np.float64, np.float32])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_at_singular_matrices(name: str, real: type) -> None:
    """They are the dense arrays, of one matrix and of batches in which some have an inverse."""
    expression = OPERATORS[name]
    (leaf,) = [array for array in (X, S, T) if array.node in topological([expression.node])]
    kind = "jacobian" if expression.shape else "hessian"
    kinds = [kind, f"{kind}_operator"]
    one = dx.compile(dx.function("f", [leaf], expression, kinds=kinds))
    several = dx.compile(dx.function("g", [leaf], expression, batch=[leaf], kinds=kinds))
    for size in [3] if leaf is T else [1, 2, 4, 7]:
        matrices = [of_rank(size, max(0, size - lost)) / size for lost in range(4)]
        if leaf is S:
            matrices = [matrix @ matrix.T for matrix in matrices]
        points = [*np.array(matrices, real), np.array(matrices, real)]
        for module, point in zip([*4 * [one], several], points, strict=True):
            dense = getattr(module, kind)(point)
            operator = getattr(module, f"{kind}_operator")(point)
            scale = (1e-11 if real == np.float64 else 1e-4) * max(1, abs(dense).max())
            np.testing.assert_allclose(operator.todense(), dense, rtol=0, atol=scale)
            vector = np.random.default_rng(0).normal(size=point.shape).astype(real)
            for product, axes in (
                (operator @ vector, "...ijkl,...kl->...ij"),
                (operator.T @ vector, "...ijkl,...ij->...kl"),
            ):
                expected = np.einsum(axes, dense, vector)
                np.testing.assert_allclose(product, expected, rtol=0, atol=10 * size * scale)


def test_solutions_with_the_hessian_of_a_determinant(determinant: Any) -> None:
    matrix, right = of_rank(3, 3), np.random.default_rng(4).normal(size=(3, 3))
    operator = determinant.hessian_operator(matrix)
    assert operator.structure == "(Aᵀ ⊗ A) K + rank 1"
    np.testing.assert_allclose(operator @ operator.solve(right), right, atol=1e-12)
    with pytest.raises(np.linalg.LinAlgError):
        determinant.hessian_operator(np.zeros((3, 3))).solve(right)


def test_a_planted_fault_is_refused(tmp_path: Path) -> None:
    right = adjugates._split_matrix

    def turned(*arguments: Any) -> Any:
        actual = right(*arguments)
        return actual and (Array(actual[0]).mT.node, actual[1])

    identity = Identity("det(X)", "X: n n", "X", "")
    assert (
        passes(identity, lambda patch: patch.setattr(adjugates, "_split_matrix", turned), tmp_path)
        is False
    )


def test_determinants_are_verified_where_single_precision_has_no_such_numbers(
    determinant: Any,
) -> None:
    assert dx.verify(determinant).passed
