"""The adjugate det(A) A⁻¹, which exists for singular matrices, too, and its derivatives."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from derivatrix.compiler.ir.arrays import Array, apply, multiply, sum_over
from derivatrix.compiler.ir.nodes import einsum
from derivatrix.compiler.ir.operation import Arrays, Operation, Parameters, Point, register
from derivatrix.compiler.operations import unrolled
from derivatrix.compiler.operations.determinant import DETERMINANT
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.shapes import same, square
from derivatrix.runtime.errors import UnsupportedError


def _value(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    """det(U) det(V) V diag(p) Uᵀ for A = U diag(s) Vᵀ with p[i] = Π_{j≠i} s[j]."""
    u, s, vh = np.linalg.svd(arguments[0])
    products = np.where(np.eye(s.shape[-1]) == 1, 1, s[..., None, :]).prod(-1)
    sign = np.asarray(np.linalg.det(u) * np.linalg.det(vh))[..., None, None]
    return (sign * (vh.mT * products[..., None, :]) @ u.mT,)


def _differential(at: Point) -> tuple[Array, ...]:
    """d adj A = det(A) tr(A⁻¹ dA) A⁻¹ - det(A) A⁻¹ dA A⁻¹."""
    inverse = apply(INVERSE, at.arguments[0])
    scaled = multiply(inverse, apply(DETERMINANT, at.arguments[0]))
    return (multiply(scaled, _trace(inverse, at.tangents[0])) - scaled @ at.tangents[0] @ inverse,)


def _trace(a: Array, b: Array) -> Array:
    """tr(A B)."""
    return sum_over(multiply(a.mT, b))


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
nearly so of the singular value decomposition, as is its derivative; kernels for CUDA devices raise
LinAlgError there. Second derivatives need an inverse.""",
    )
)


def _decomposed(matrix: np.ndarray) -> tuple[np.ndarray, ...]:
    """Decompose A = U diag(s) Vᵀ. Returns U, V, and det(U) det(V) times the matrix P of the
    products of all s except s[p] and s[q], zero where p = q."""
    u, s, vh = np.linalg.svd(matrix)
    identity = np.eye(s.shape[-1])
    is_excluded = identity[:, None] + identity > 0
    products = np.where(is_excluded, 1, s[..., None, None, :]).prod(-1) * (1 - identity)
    sign = np.asarray(np.linalg.det(u) * np.linalg.det(vh))[..., None, None]
    return u, vh.mT, sign * products


def _derivative(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    """V D Uᵀ: with W = Uᵀ dA V and the products P of all s except two, D[p,q] = -P[p,q] W[p,q], and
    on the diagonal D[p,p] = Σ_r P[p,r] W[r,r]."""
    u, v, products = _decomposed(arguments[0])
    inner = u.mT @ arguments[1] @ v
    sums = products @ np.diagonal(inner, axis1=-2, axis2=-1)[..., None]
    return (v @ (sums * np.eye(u.shape[-1]) - products * inner) @ u.mT,)


def _jacobian(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    u, v, products = _decomposed(arguments[0])
    trace = np.einsum("...ap,...bp,...pq,...cq,...dq->...abcd", v, u, products, u, v)
    product = np.einsum("...ap,...bq,...pq,...cp,...dq->...abcd", v, u, products, u, v)
    return (trace - product,)


def _derivative_differential(at: Point) -> tuple[Array, ...]:
    """The differential of det(A) (tr(A⁻¹ V) A⁻¹ - A⁻¹ V A⁻¹), by the product rule."""
    matrix, along = at.arguments
    inverse, change = apply(INVERSE, matrix), at.tangents[0]
    b_along_b, b_change_b = inverse @ along @ inverse, inverse @ change @ inverse
    tangent = b_change_b @ along @ inverse + b_along_b @ change @ inverse
    tangent -= multiply(b_change_b, _trace(inverse, along))
    tangent -= multiply(inverse, _trace(b_change_b, along))
    tangent = multiply(tangent, apply(DETERMINANT, matrix))
    tangent += multiply(at.result, _trace(inverse, change))
    return (tangent + apply(ADJUGATE_DERIVATIVE, matrix, at.tangents[1]),)


def _jacobian_differential(at: Point) -> tuple[Array, ...]:
    """The differential of det(A) (B[i,j] B[m,k] - B[i,k] B[m,j]) for B = A⁻¹."""
    (matrix,), (change,) = at.arguments, at.tangents
    inverse = apply(INVERSE, matrix)
    b_change_b = inverse @ change @ inverse
    d_products = _exchanged(b_change_b, inverse) + _exchanged(inverse, b_change_b)
    relative = multiply(at.result, _trace(inverse, change))
    return (relative - multiply(d_products, apply(DETERMINANT, matrix)),)


def _exchanged(a: Array, b: Array) -> Array:
    """A[i,j] B[m,k] - A[i,k] B[m,j]."""
    product = einsum([(a.node, "ij"), (b.node, "mk")], "ijkm")
    exchanged = einsum([(a.node, "ik"), (b.node, "mj")], "ijkm")
    return Array(product) - Array(exchanged)


NUMPY_TERMS = (
    "(lambda u, v, o, *c: np.einsum('...pa,...bp,...pq,...cq,...qd{1}', v, u, o, u, v, *c)"
    " - np.einsum('...pa,...bq,...pq,...cp,...qd{1}', v, u, o, u, v, *c))"
    "(*(lambda u, s, v: (lambda e: (u, v, np.asarray(np.linalg.det(u) * np.linalg.det(v))"
    "[..., None, None] * np.prod(np.where(e[:, None] + e > 0, 1, s[..., None, None, :]), -1)"
    " * (1 - e)))(np.eye(s.shape[-1])))(*np.linalg.svd({0})){2})"
)

ADJUGATE_DERIVATIVE: Operation = register(
    Operation(
        name="adjugate_derivative",
        ranks=(2, 2),
        shapes=lambda cores, parameters: (
            square("adjugate_derivative", same("adjugate_derivative", cores)),
        ),
        value=_derivative,
        differential=_derivative_differential,
        transposes={
            1: lambda at, cotangent: apply(ADJUGATE_DERIVATIVE, at.arguments[0], cotangent.mT).mT
        },
        numpy=lambda arguments, parameters, output: NUMPY_TERMS.format(
            arguments[0], ",...cd->...ab", f", {arguments[1]}"
        ),
        kernel="adjugate.adjugate_derivative",
        failure="the matrix is singular, and its singular values are not found",
        facts=lambda arguments, output: arguments[0] & arguments[1] & {"symmetric"},
        unrolled=unrolled.adjugate_derivative,
        description="""The derivative of the adjugate of a square matrix A along dA:
det(A) (tr(inv(A) dA) inv(A) - inv(A) dA inv(A)) where A has an inverse, and finite elsewhere.

A, dA: square matrices of one size, with leading stacked axes if any. Kernels for CUDA devices raise
LinAlgError where A is singular.""",
    )
)

ADJUGATE_JACOBIAN = register(
    Operation(
        name="adjugate_jacobian",
        ranks=(2,),
        shapes=lambda cores, parameters: (square("adjugate_jacobian", cores[0]) * 2,),
        value=_jacobian,
        differential=_jacobian_differential,
        numpy=lambda arguments, parameters, output: NUMPY_TERMS.format(
            arguments[0], "->...abcd", ""
        ),
        kernel="adjugate.adjugate_jacobian",
        failure="the matrix is singular, and its singular values are not found",
        unrolled=unrolled.adjugate_jacobian,
        description="""All partial derivatives of the adjugate of a square matrix A: [i, j, k, l] is
that of adj(A)[i, j] by A[k, l].

A: a square matrix, with leading stacked axes if any. Kernels for CUDA devices raise LinAlgError
where A is singular.""",
    )
)


def _factors(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    """det(A) and A⁻¹, then zeros; where A is nearly singular two zeros, then P, U and V."""
    (matrix,) = arguments
    s = np.linalg.svd(matrix, compute_uv=False)
    # A⁻¹ loses as many digits as cond(A) has
    regular = (s[..., -1:] > np.finfo(s.dtype).eps ** 0.25 * s[..., :1]).all(-1)
    matrices = np.expand_dims(regular, (-2, -1))
    inverse = np.linalg.inv(np.where(matrices, matrix, np.eye(s.shape[-1])))
    u, v, products = (np.where(matrices, 0, part) for part in _decomposed(matrix))
    size = np.where(regular, np.linalg.det(matrix), 0)
    return size, np.where(matrices, inverse, 0), products, u, v


def _only_in_operators(*arguments: Any) -> NoReturn:
    raise UnsupportedError(
        "adjugate_factors: the arrays of operators are neither derived nor shown"
    )


ADJUGATE_FACTORS = Operation(
    name="adjugate_factors",
    ranks=(2,),
    shapes=lambda cores, parameters: ((), *4 * (square("adjugate_factors", cores[0]),)),
    value=_factors,
    differential=_only_in_operators,
    numpy=_only_in_operators,
    unicode="adj({0})",
    kernel="adjugate.adjugate_factors",
    failure="the matrix is singular, and its singular values are not found",
    outputs=("d", "B", "P", "U", "V"),
)
"""The arrays of which operators make all partial derivatives of adj(A)[i, j] by A[k, l]:
d (B[i,j] B[l,k] - B[i,k] B[l,j]) for d = det(A) and B = inv(A), plus the sum over p and q of
P[p,q] V[i,p] V[l,q] (U[j,p] U[k,q] - U[j,q] U[k,p]) for A = U diag(s) V' and the products P of all
s but two. Where A is nearly singular d and B are zero, elsewhere P, U and V are."""
