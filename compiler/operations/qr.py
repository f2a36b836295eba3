"""The thin QR decomposition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from derivatrix.compiler.ir.arrays import Array, apply
from derivatrix.compiler.ir.dimensions import Shape, shape_text
from derivatrix.compiler.ir.operation import Arrays, Operation, Parameters, Point, register
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.matrices import ORTHONORMAL_COLUMNS
from derivatrix.compiler.operations.triangles import half_lower
from derivatrix.runtime.errors import ShapeError

DIAGONAL_SIGNS = "np.sign(np.diagonal(r, axis1=-2, axis2=-1))"

HAS_FULL_RANK = (
    "np.linalg.matrix_rank(a / np.linalg.norm(a, axis=-2, keepdims=True))[..., None, None] "
    "== a.shape[-1]"
)


def _shapes(cores: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    p, k = cores[0]
    if (p - k).is_negative:
        raise ShapeError(f"qr needs at least as many rows as columns, not {shape_text(cores[0])}")
    return (p, k), (k, k)


def _value(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    matrix = arguments[0]
    q, r = np.linalg.qr(matrix)
    # Columns of unit length: independent ones may differ in size by more than rounding allows.
    lengths = np.linalg.norm(matrix, axis=-2, keepdims=True)
    if not (lengths.all() and (np.linalg.matrix_rank(matrix / lengths) == matrix.shape[-1]).all()):
        raise np.linalg.LinAlgError("the columns are linearly dependent")
    signs = np.sign(np.diagonal(r, axis1=-2, axis2=-1))
    return q * signs[..., None, :], r * signs[..., None]


def _differential(at: Point) -> tuple[Array, ...]:
    """dR = T R and dQ = dA R⁻¹ - Q T with C = Qᵀ dA R⁻¹ and the upper triangular T = Φ(C + Cᵀ)ᵀ
    (Walter and Lehmann 2010)."""
    (q, r), change = at.results, at.tangents[0]
    change_over_r = change @ apply(INVERSE, r)
    inner = q.mT @ change_over_r
    upper = half_lower(inner + inner.mT).mT
    return change_over_r - q @ upper, upper @ r


def _numpy(arguments: Sequence[str], parameters: Parameters, output: int) -> str:
    factor = (f"q * {DIAGONAL_SIGNS}[..., None, :]", f"r * {DIAGONAL_SIGNS}[..., None]")[output]
    return (
        f"(lambda a: (lambda q, r: np.where({HAS_FULL_RANK}, {factor}, np.nan))"
        f"(*np.linalg.qr(a)))({arguments[0]})"
    )


QR = register(
    Operation(
        name="qr",
        ranks=(2,),
        shapes=_shapes,
        requires=lambda cores: (cores[0][0] - cores[0][1],),
        value=_value,
        differential=_differential,
        numpy=_numpy,
        kernel="factors.thin_qr",
        failure="the columns are linearly dependent",
        facts=lambda arguments, output: frozenset({"upper"}) if output else ORTHONORMAL_COLUMNS,
        outputs=("Q", "R"),
        notation=("qrQ", "qrR"),
        letters=("Q", "R"),
        description="""The thin decomposition A = Q R with a positive diagonal of R.

A: a matrix of shape (p, k) with p >= k, with leading stacked axes if any. Q, of shape (p, k), has
orthonormal columns; R, of shape (k, k), is upper triangular. Raises ShapeError where there are,
by the declared sizes, fewer rows than columns, and LinAlgError where the columns are linearly
dependent, up to rounding.""",
    )
)
