"""The adjugate of a square matrix: det(A) A⁻¹, which singular matrices have, too."""

from __future__ import annotations

import numpy as np

from derivatrix.compiler.ir.arrays import Array, apply, multiply, sum_over
from derivatrix.compiler.ir.operation import Arrays, Operation, Parameters, Point, register
from derivatrix.compiler.operations import unrolled
from derivatrix.compiler.operations.determinant import DETERMINANT
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.shapes import square


def _value(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    """det(U) det(V) V diag(p) Uᵀ for A = U diag(s) Vᵀ, where p[i] is the product of all s but
    s[i]."""
    u, s, vh = np.linalg.svd(arguments[0])
    others = np.where(np.eye(s.shape[-1]) == 1, 1, s[..., None, :]).prod(-1)
    sign = np.asarray(np.linalg.det(u) * np.linalg.det(vh))[..., None, None]
    return (sign * (vh.mT * others[..., None, :]) @ u.mT,)


def _differential(at: Point) -> tuple[Array, ...]:
    """d adj A = det(A) (tr(A⁻¹ dA) A⁻¹ - A⁻¹ dA A⁻¹)."""
    inverse = apply(INVERSE, at.arguments[0])
    size = sum_over(multiply(inverse.mT, at.tangents[0]))
    change = multiply(inverse, size) - inverse @ at.tangents[0] @ inverse
    return (multiply(change, apply(DETERMINANT, at.arguments[0])),)


NUMPY = (
    "(lambda u, s, v: np.asarray(np.linalg.det(u) * np.linalg.det(v))[..., None, None] * "
    "(np.swapaxes(v, -1, -2) * np.prod(np.where(np.eye(s.shape[-1]) == 1, 1, s[..., None, :]), -1)"
    "[..., None, :]) @ np.swapaxes(u, -1, -2))(*np.linalg.svd({}))"
)

ADJUGATE = register(
    Operation(
        name="adjugate",
        ranks=(2,),
        shapes=lambda cores, parameters: (square("adjugate", cores[0]),),
        value=_value,
        differential=_differential,
        numpy=lambda arguments, parameters, output: NUMPY.format(arguments[0]),
        kernel="adjugate.adjugate",
        failure="the matrix is singular, and its singular values are not found",
        facts=lambda arguments, output: arguments[0] & {"symmetric", "lower", "upper", "diagonal"},
        unrolled=unrolled.adjugate,
        notation=("adj",),
        title="an adjugate",
        description="""The adjugate of a square matrix: the transposed matrix of its cofactors,
det(A) inv(A) where A has an inverse.

A: a square matrix, with leading stacked axes if any. Made of the inverse, or where A is singular or
nearly so of the singular value decomposition; kernels for CUDA devices raise LinAlgError there. Its
derivatives need an inverse.""",
    )
)
