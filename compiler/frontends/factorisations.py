"""Factorisations with NumPy's and SciPy's options; pseudoinverses and least squares."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

import numpy as np
import sympy

from derivatrix.compiler.frontends.linear import solve
from derivatrix.compiler.frontends.operations import calling
from derivatrix.compiler.frontends.rearrange import concatenate
from derivatrix.compiler.ir.arrays import Array, apply, asarray, elementwise, scale
from derivatrix.compiler.ir.messages import disagreement
from derivatrix.compiler.ir.nodes import Slice, einsum, slot
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.ir.spectral_weights import reciprocal, selected
from derivatrix.compiler.operations.cholesky import CHOLESKY
from derivatrix.compiler.operations.eigen import EIGH, EIGVALSH
from derivatrix.compiler.operations.gaps import ROUNDING_LEVEL
from derivatrix.compiler.operations.matrices import HALF
from derivatrix.compiler.operations.polar import POLAR
from derivatrix.compiler.operations.pseudoinverse import PINV
from derivatrix.compiler.operations.qr import QR
from derivatrix.compiler.operations.singular import SVD, SVDVALS
from derivatrix.runtime.errors import DeclarationError, UnsupportedError


class QRResult(NamedTuple):
    """A = Q R."""

    Q: Array
    R: Array


class EighResult(NamedTuple):
    """A V = V diag(λ), or A V = B V diag(λ)."""

    eigenvalues: Array
    eigenvectors: Array


class SVDResult(NamedTuple):
    """A = U diag(S) Vh."""

    U: Array
    S: Array
    Vh: Array


class PolarResult(NamedTuple):
    """A = U P or A = P U."""

    U: Array
    P: Array


def cholesky(array: Any, *, upper: bool = False) -> Array:
    factor: Array = calling(CHOLESKY)(array)
    return factor.mT if upper else factor


@overload
def qr(array: Any, mode: Literal["reduced", "economic"] = "reduced") -> QRResult: ...
@overload
def qr(array: Any, mode: Literal["r"]) -> Array: ...
def qr(array: Any, mode: str = "reduced") -> QRResult | Array:
    operand = asarray(array)
    if mode not in ("reduced", "economic", "r"):
        raise UnsupportedError(f"qr: mode {shown(mode)} has no rule; choose reduced or r")
    p, k = operand.node.shape[-2:] if operand.ndim > 1 else (0, 0)
    # the further columns of a wide matrix follow from Q: R = [R₁, Qᵀ A₂]
    square = operand[..., :p] if operand.ndim > 1 and (k - p).is_positive else operand
    q, r = calling(QR)(square)
    if square is not operand:
        r = concatenate([r, q.mT @ operand[..., p:]], axis=-1)
    return r if mode == "r" else QRResult(q, r)


def eigh(array: Any, other: Any = None) -> EighResult:
    if other is None:
        return EighResult(*calling(EIGH)(array))
    factor, reduced = _reduced("eigh", asarray(array), asarray(other))
    values, vectors = calling(EIGH)(reduced)
    return EighResult(values, solve(factor.mT, vectors))


def eigvalsh(array: Any, other: Any = None) -> Array:
    if other is not None:
        array = _reduced("eigvalsh", asarray(array), asarray(other))[1]
    return calling(EIGVALSH)(array)


def _reduced(name: str, matrix: Array, other: Array) -> tuple[Array, Array]:
    """Reduce A x = λ B x to the standard problem of L⁻¹ A L⁻ᵀ, with the Cholesky factor L of B;
    return L and this matrix."""
    if min(matrix.ndim, other.ndim) < 2 or matrix.node.shape[-2:] != other.node.shape[-2:]:
        raise disagreement(f"{name}({{}}, {{}})", [matrix.node, other.node], "expected equal sizes")
    factor = cholesky(other)
    return factor, solve(factor, solve(factor, matrix).mT)


def lambda_max(array: Any) -> Array:
    """The largest eigenvalue of a symmetric matrix, with leading stacked axes if any; where it
    is repeated there is no derivative, and the one that is given is of one choice of vector."""
    return eigvalsh(array)[..., -1]


def lambda_min(array: Any) -> Array:
    """The least eigenvalue of a symmetric matrix; see `lambda_max`."""
    return eigvalsh(array)[..., 0]


@overload
def svd(array: Any, full_matrices: bool = False, compute_uv: Literal[True] = True) -> SVDResult: ...
@overload
def svd(array: Any, full_matrices: bool = False, *, compute_uv: Literal[False]) -> Array: ...
def svd(array: Any, full_matrices: bool = False, compute_uv: bool = True) -> SVDResult | Array:
    operand = asarray(array)
    if not compute_uv:
        return apply(SVDVALS, operand)
    if full_matrices and operand.node.shape[-2:-1] != operand.node.shape[-1:]:
        raise UnsupportedError(
            "svd: full_matrices=True has no rule, since the further vectors are not determined; "
            "use full_matrices=False"
        )
    u, s, v = calling(SVD)(operand)
    return SVDResult(u, s, v.mT)


def polar(array: Any, side: str = "right") -> PolarResult:
    """The polar decomposition A = U P (side="right") or A = P U ("left"), with orthonormal columns
    of U, or rows where there are fewer of them, and a semidefinite P; as scipy.linalg.polar."""
    if side not in ("right", "left"):
        raise UnsupportedError(f"polar: side is 'right' or 'left', not {shown(side)}")
    operand = asarray(array)
    factor = apply(POLAR, operand)
    product = factor.mT @ operand if side == "right" else operand @ factor.mT
    # symmetric but for rounding: the mean with its transpose is so to the last bit
    return PolarResult(factor, scale(product + product.mT, HALF))


def pinv(array: Any, rank: Any = None) -> Array:
    operand = asarray(array)
    if rank is None:
        return apply(PINV, operand)
    u, s, v = calling(SVD)(operand)
    is_integer = isinstance(rank, (int, np.integer)) and not isinstance(rank, bool)
    count = sympy.Integer(int(rank)) if is_integer else rank
    is_size = isinstance(count, sympy.Expr) and count.is_integer is not False
    too_large = is_size and (count - s.node.shape[-1]).is_positive
    if not is_size or (count - 1).is_negative or too_large:
        raise DeclarationError(
            f"pinv: the rank of {operand} is an integer or a size from 1 to {s.node.shape[-1]}, "
            f"not {shown(rank)}"
        )
    # a selection, not a product with 0: the reciprocals of the other singular values may be
    # infinite
    largest = Array(einsum([(Slice(count, s.node.shape[-1], sympy.S.Zero, 1), "ji")], "i"))
    level = apply(ROUNDING_LEVEL, s)[..., None]
    weight = selected(slot(0), reciprocal(slot(1), sympy.S.Zero, slot(2)))
    return (v * elementwise(weight, largest, s, level)[..., None, :]) @ u.mT


def lstsq(matrix: Any, right: Any) -> Array:
    """The x of least length with the least |A x - b|: pinv(A) @ b, for A of full rank, and b a
    vector or a matrix. LinAlgError where A is not of full rank; see `pinv`."""
    a, b = asarray(matrix), asarray(right)
    if a.ndim < 2 or not b.ndim or a.node.shape[-2] != b.node.shape[max(b.ndim - 2, 0)]:
        problem = "expected a matrix, and as many rows in the second"
        raise disagreement("lstsq({}, {})", [a.node, b.node], problem)
    return apply(PINV, a) @ b


pinv.__doc__ = f"""{PINV.description}

rank: of a matrix whose columns and rows are dependent, but whose rank r is known. The value is that
of the nearest matrix of this rank, V_r diag(1/s_r) U_rᵀ of the r largest singular values, and so
are derivatives, in all directions: at a matrix A of rank r they are those of Golub and Pereyra
(1973), dP = -P dA P + P Pᵀ dAᵀ (I - A P) + (I - P A) dAᵀ Pᵀ P. It is nan where the rank is less."""
cholesky.__doc__ = f"{CHOLESKY.description}\n\nupper: whether Lᵀ is wanted instead."
qr.__doc__ = f"""{QR.description}

mode: "reduced", or "r" for R alone. A matrix that has, by its sizes, fewer rows than columns is
factored as its first p columns are: Q is (p, p), R (p, k)."""
eigh.__doc__ = f"""{EIGH.description}

other: a positive definite B for the generalised problem A V = B V diag(λ), where Vᵀ B V = I; the
signs are those of Lᵀ V for B's Cholesky factor L."""
eigvalsh.__doc__ = f"""{EIGVALSH.description}

other: a positive definite B for the eigenvalues of A x = λ B x."""
svd.__doc__ = f"""{SVD.description}

Here the last of the three is Vᵀ, as in NumPy. compute_uv: False for the singular values alone."""
