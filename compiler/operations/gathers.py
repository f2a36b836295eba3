"""Rows of a matrix at positions that are data, and the sums of rows at equal positions.

Positions are numbers, rounded down and taken modulo the number of rows, as NumPy's `take` with
mode="wrap"; so a negative one counts from the end. Where a position is nan or infinite the row is
nan. Derivatives by positions are zero, as rows are constant between whole numbers."""

from collections.abc import Sequence

import numpy as np

from derivatrix.compiler.ir.arrays import Array, apply
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.nodes import full
from derivatrix.compiler.ir.operation import Arrays, Operation, Parameters, Point, register
from derivatrix.runtime.errors import ShapeError

_SELECTION = "(np.floor(i)[..., None] % {0} == np.arange({0})) + (i - i)[..., None]"
"""The matrix of zeros and ones that selects rows; i - i is nan for positions without a row."""


def _selection(positions: np.ndarray, rows: int) -> np.ndarray:
    """Return the matrix of zeros and ones that selects from `rows` rows, (..., positions, rows):
    nan for positions that are not finite."""
    with np.errstate(invalid="ignore"):
        is_selected = np.floor(positions)[..., None] % rows == np.arange(rows)
    return np.where(np.isfinite(positions)[..., None], is_selected, np.nan)


def _row_shapes(cores: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    matrix, positions = cores
    return ((positions[0], matrix[1]),)


def _sum_shapes(cores: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    rows, positions, ones = cores
    if rows[0] != positions[0]:
        raise ShapeError(
            f"sums_at needs as many positions as rows, not {positions[0]} and {rows[0]}"
        )
    return ((ones[0], rows[1]),)


def _sums(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
    rows, positions, ones = arguments
    return (np.swapaxes(_selection(positions, ones.shape[-1]), -1, -2) @ rows,)


def _cotangent(at: Point, cotangent: Array) -> Array:
    rows = at.arguments[0].node.shape[0]
    return apply(SUMS_AT, cotangent, at.arguments[1], Array(full(1, (rows,))))


ROWS_AT: Operation = register(
    Operation(
        name="rows_at",
        ranks=(2, 1),
        shapes=_row_shapes,
        requires=lambda cores: (cores[0][0] - 1,),
        value=lambda arguments, parameters: (
            _selection(arguments[1], arguments[0].shape[-2]) @ arguments[0],
        ),
        differential=lambda at: (apply(ROWS_AT, at.tangents[0], at.arguments[1]),),
        transposes={0: _cotangent},
        numpy=lambda arguments, *_: (
            f"(lambda X, i: ({_SELECTION.format('X.shape[-2]')}) @ X)({', '.join(arguments)})"
        ),
        unicode="{0}[{1}]",
        latex="{0}[{1}]",
        kernel="gathers.rows_at",
        description="The rows of a matrix at positions: numbers that are rounded down, modulo the "
        "number of rows.",
    )
)

SUMS_AT: Operation = register(
    Operation(
        name="sums_at",
        ranks=(2, 1, 1),
        shapes=_sum_shapes,
        requires=lambda cores: (cores[2][0] - 1,),
        value=_sums,
        differential=lambda at: (apply(SUMS_AT, at.tangents[0], *at.arguments[1:]),),
        transposes={0: lambda at, cotangent: apply(ROWS_AT, cotangent, at.arguments[1])},
        numpy=lambda arguments, *_: (
            f"(lambda Y, i, ones: np.swapaxes({_SELECTION.format('ones.shape[-1]')}, -1, -2) @ Y)"
            f"({', '.join(arguments)})"
        ),
        kernel="gathers.sums_at",
        description="The adjoint of rows_at: row i is the sum of the rows of the matrix whose "
        "positions are i. The last vector has as many entries as the result has rows.",
    )
)
