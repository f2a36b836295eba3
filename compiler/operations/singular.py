"""Singular values and vectors, and the nuclear norm."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import sympy

from derivatrix.compiler.ir.arrays import Array, apply, multiply, sum_over
from derivatrix.compiler.ir.dimensions import Dimension, Shape
from derivatrix.compiler.ir.operation import Arrays, Operation, Parameters, Point, register
from derivatrix.compiler.operations.gaps import over_gaps, over_sums, reciprocals
from derivatrix.compiler.operations.matrices import (
    ORTHONORMAL_COLUMNS,
    columns_scaled,
    diagonal_of,
    skew_part,
    symmetric_part,
)
from derivatrix.compiler.operations.polar import POLAR
from derivatrix.compiler.operations.signs import SIGNS, signs

NOT_CONVERGED = "the singular values did not converge, or an entry is not finite"


@lru_cache(maxsize=4096)
def rank(shape: Shape) -> Dimension:
    """Return the number of singular values of a matrix."""
    return sympy.Min(*shape)


def _shapes(cores: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    p, q = cores[0]
    k = rank(cores[0])
    return (p, k), (k,), (q, k)


def _value(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    u, s, vh = np.linalg.svd(arguments[0], full_matrices=False)
    sign = signs(u)
    return u * sign, s, np.swapaxes(vh, -1, -2) * sign


def _differential(at: Point) -> tuple[Array, ...]:
    """dσ = diag(B),
    dU = U (F ∘ sym B + G ∘ skew B) + (I - U Uᵀ) dA V Σ⁻¹,
    dV = V (F ∘ sym B - G ∘ skew B) + (I - V Vᵀ) dAᵀ U Σ⁻¹
    with B = Uᵀ dA V, F_ij = 1/(σ_j - σ_i), G_ij = 1/(σ_i + σ_j) (from Giles, An extended collection
    of matrix derivative results, 2008, in partial fractions)."""
    (u, s, v), change = at.results, at.tangents[0]
    inner = u.mT @ change @ v
    even = over_gaps(s, symmetric_part("svd", inner))
    odd = over_sums(s, skew_part(inner))
    p, q = at.arguments[0].node.shape
    d_left, d_right = u @ (even + odd), v @ (even - odd)
    if not (q - p).is_nonnegative:
        d_left = d_left + _orthogonal_to(u, columns_scaled(change @ v, reciprocals(s)))
    if not (p - q).is_nonnegative:
        d_right = d_right + _orthogonal_to(v, columns_scaled(change.mT @ u, reciprocals(s)))
    return d_left, diagonal_of(inner), d_right


def _orthogonal_to(basis: Array, matrix: Array) -> Array:
    """Project the columns of a matrix onto the orthogonal complement of a basis."""
    return matrix - basis @ (basis.mT @ matrix)


def _values_differential(at: Point) -> tuple[Array, ...]:
    """dσ = diag(Uᵀ dA V)."""
    u = apply(SVD, at.arguments[0])
    v = apply(SVD, at.arguments[0], output=2)
    return (diagonal_of(u.mT @ at.tangents[0] @ v),)


def _numpy(arguments: Sequence[str], parameters: Parameters, output: int) -> str:
    decomposition = f"np.linalg.svd({arguments[0]}, full_matrices=False)"
    if output == 1:
        return f"{decomposition}[1]"
    vectors = "np.swapaxes(v, -1, -2)" if output else "u"
    return f"(lambda u, s, v: {vectors} * {SIGNS.format('u')})(*{decomposition})"


SVD = register(
    Operation(
        name="svd",
        ranks=(2,),
        shapes=_shapes,
        value=_value,
        differential=_differential,
        numpy=_numpy,
        unicode=("svdU({0})", "svdvals({0})", "svdV({0})"),
        latex=(r"U({0})", r"\sigma({0})", r"V({0})"),
        kernel="singular.singular_vectors",
        failure=NOT_CONVERGED,
        facts=lambda arguments, output: ORTHONORMAL_COLUMNS if output != 1 else frozenset(),
        outputs=("U", "S", "V"),
        notation=("svdU", "", "svdV"),
        letters=("U", "", "V"),
        description="""The thin singular value decomposition A = U diag(S) Vᵀ.

A: a matrix of any shape (p, q), with leading stacked axes if any; U is (p, k), S (k,) and V (q, k)
with k = min(p, q). The singular values descend. Of each column of U the largest entry is positive
(the first of them, if several are equally large), which also fixes the sign of V's. Where a
singular value is repeated or, with p != q, zero up to rounding, its vectors have no derivative,
and what depends on their derivative is nan. U diag(h(S)) Vᵀ, and so with two U or two V, for a
smooth function h, entry by entry, has derivatives of every order where no singular value is zero,
made of divided differences. With c h(S) and c of numbers, slices and signs, as U[:, :k] diag(S[:k])
V[:, :k]ᵀ or U diag(1, 1, det(U Vᵀ)) Vᵀ, it has them where singular values of different c are apart,
and those where c is zero may be zero.""",
    )
)

SVDVALS = register(
    Operation(
        name="svdvals",
        ranks=(2,),
        shapes=lambda cores, parameters: ((rank(cores[0]),),),
        value=lambda arguments, parameters: (np.linalg.svd(arguments[0], compute_uv=False),),
        differential=_values_differential,
        numpy=lambda arguments, *_: f"np.linalg.svd({arguments[0]}, compute_uv=False)",
        latex=r"\sigma({0})",
        kernel="singular.singular_values",
        follows_from={SVD: lambda at: at.results[1]},
        failure=NOT_CONVERGED,
        notation=("svdvals",),
        description="""The singular values of a matrix, descending.

A: a matrix of any shape (p, q), with leading stacked axes if any; there are min(p, q) singular
values. First derivatives of what does not depend on the order of equal singular values, as their
sum, are right wherever these are not zero; second derivatives are nan where they depend on a
singular value that is repeated or zero up to rounding.""",
    )
)


NUCLEAR = register(
    Operation(
        name="nuclear_norm",
        ranks=(2,),
        shapes=lambda cores, parameters: ((),),
        value=lambda arguments, parameters: (
            np.asarray(np.linalg.svd(arguments[0], compute_uv=False).sum(-1)),
        ),
        # d‖X‖ = ⟨W, dX⟩ with the polar factor W = U Vᵀ
        differential=lambda at: (
            sum_over(multiply(apply(POLAR, at.arguments[0]), at.tangents[0])),
        ),
        numpy=lambda arguments, *_: f"np.linalg.norm({arguments[0]}, 'nuc', axis=(-2, -1))",
        latex=r"\left\|{0}\right\|_*",
        kernel="singular.nuclear_norm",
        follows_from={POLAR: lambda at: sum_over(multiply(at.result, at.arguments[0]))},
        failure=NOT_CONVERGED,
        notation=("normnuc",),
        description="""The nuclear norm of a matrix: the sum of its singular values.

X: a matrix of any shape, with leading stacked axes if any. The gradient is the polar factor of X;
where X is not of full rank, and there is no gradient, it is one of the subgradients U Vᵀ, and
second derivatives raise LinAlgError.""",
    )
)
