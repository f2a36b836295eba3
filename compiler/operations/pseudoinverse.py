"""The pseudoinverse of matrices of full rank."""

from __future__ import annotations

import numpy as np

from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.operation import Arrays, Operation, Parameters, Point, register
from derivatrix.compiler.operations.pivots import reciprocal


def _value(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    u, s, vh = np.linalg.svd(arguments[0], full_matrices=False)
    # the tolerance of np.linalg.matrix_rank, by which the text decides, too
    if not (s > max(arguments[0].shape[-2:]) * np.finfo(s.dtype).eps * s[..., :1]).all():
        raise np.linalg.LinAlgError("the matrix is not of full rank")
    return (np.swapaxes(vh, -1, -2) / s[..., None, :] @ np.swapaxes(u, -1, -2),)


def _differential(at: Point) -> tuple[Array, ...]:
    """dP = -P dA P + P Pᵀ dAᵀ (I - A P) + (I - P A) dAᵀ Pᵀ P (Golub and Pereyra 1973). One of the
    projections is zero; the shape tells which."""
    (matrix,), (change,), inverse = at.arguments, at.tangents, at.result
    p, q = matrix.node.shape
    result = -(inverse @ change @ inverse)
    if not (q - p).is_nonnegative:
        product = inverse @ inverse.mT @ change.mT
        result = result + product - product @ matrix @ inverse
    if not (p - q).is_nonnegative:
        product = change.mT @ inverse.mT @ inverse
        result = result + product - inverse @ matrix @ product
    return (result,)


PINV = register(
    Operation(
        name="pinv",
        ranks=(2,),
        shapes=lambda cores, parameters: (cores[0][::-1],),
        value=_value,
        differential=_differential,
        numpy=lambda arguments, *_: (
            "(lambda a: np.where(np.linalg.matrix_rank(a)[..., None, None] "
            f"== np.min(a.shape[-2:]), np.linalg.pinv(a), np.nan))({arguments[0]})"
        ),
        latex=r"{0}^{{+}}",
        kernel="factors.full_rank_pinv",
        single=reciprocal,
        failure="the matrix is not of full rank",
        facts=lambda arguments, output: arguments[0] & {"symmetric", "spd", "psd"},
        notation=("pinv",),
        description="""The pseudoinverse (Moore and Penrose) of a matrix of full rank.

A: a matrix of shape (p, q) whose columns, or rows if there are fewer of them, are linearly
independent, with leading stacked axes if any. Raises LinAlgError where they are dependent up to
rounding, since the pseudoinverse is not continuous there.""",
    )
)
