"""Parts of matrices in differentials, and helpers of records of matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import sympy

from derivatrix.compiler.ir.arrays import Array, multiply, scale
from derivatrix.compiler.ir.nodes import Triangle, einsum
from derivatrix.compiler.ir.structure import ORTHONORMAL, facts
from derivatrix.compiler.operations.shapes import square

HALF = sympy.Rational(1, 2)
ORTHONORMAL_COLUMNS = frozenset({"orthogonal", ORTHONORMAL})
"""The facts of a result with orthonormal columns."""


def symmetric_part(name: str, matrix: Array) -> Array:
    """(A + Aᵀ)/2 of a square matrix; A itself if it is symmetric by construction. Raises
    ShapeError, which names the operation, for other shapes."""
    square(name, matrix.node.shape)
    if "symmetric" in facts(matrix.node):
        return matrix
    return scale(matrix + matrix.mT, HALF)


def skew_part(matrix: Array) -> Array:
    """(A - Aᵀ)/2 of a square matrix."""
    return scale(matrix - matrix.mT, HALF)


def lower_part(matrix: Array, offset: int = 0) -> Array:
    """The entries i, j with i >= j + offset, and zeros above them."""
    rows, columns = matrix.node.shape[-2:]
    return multiply(matrix, Array(Triangle(rows, columns, offset)))


def upper_part(matrix: Array) -> Array:
    """The entries on and above the diagonal, and zeros below."""
    return lower_part(matrix.mT).mT


def diagonal_of(matrix: Array) -> Array:
    """The diagonal of a square matrix as a vector."""
    return Array(einsum([(matrix.node, "ii")], "i"))


def columns_scaled(matrix: Array, vector: Array) -> Array:
    """The matrix with each column times its entry of the vector: A diag(v)."""
    return Array(einsum([(matrix.node, "ij"), (vector.node, "j")], "ij"))


def each_matrix(
    compute: Callable[..., tuple[np.ndarray, ...]], arguments: Sequence[np.ndarray]
) -> tuple[np.ndarray, ...]:
    """Apply `compute`, a function of matrices, to each matrix of stacks that broadcast."""
    stack = np.broadcast_shapes(*(argument.shape[:-2] for argument in arguments))
    full = [np.broadcast_to(a, stack + a.shape[-2:]) for a in arguments]
    # The results of some regular matrices have the shapes. At the identity itself the discrete
    # Lyapunov equation is singular, so half of it is taken.
    if 0 in stack:
        examples = compute(*(np.eye(*a.shape[-2:]) / 2 for a in arguments))
        return tuple(np.empty(stack + example.shape) for example in examples)
    results = [compute(*(array[index] for array in full)) for index in np.ndindex(stack)]
    return tuple(
        np.reshape(np.stack(parts), stack + parts[0].shape) for parts in zip(*results, strict=True)
    )
