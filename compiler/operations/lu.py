"""The LU factorisation without pivoting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from derivatrix.compiler.ir.arrays import Array, apply
from derivatrix.compiler.ir.operation import Operation, Parameters, Point, register
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.matrices import each_matrix, lower_part, upper_part
from derivatrix.compiler.operations.shapes import square


def _factors(matrix: np.ndarray) -> tuple[np.ndarray, ...]:
    upper = np.array(matrix)
    lower = np.eye(len(matrix))
    for column in range(len(matrix)):
        if upper[column, column] == 0:
            raise np.linalg.LinAlgError("a pivot is zero")
        multipliers = upper[column + 1 :, column] / upper[column, column]
        lower[column + 1 :, column] = multipliers
        upper[column + 1 :] -= multipliers[:, None] * upper[column]
    return lower, np.triu(upper)


def _differential(at: Point) -> tuple[Array, ...]:
    """dL = L tril(C, -1) and dU = triu(C) U with C = L⁻¹ dA U⁻¹ = L⁻¹ dL + dU U⁻¹."""
    lower, upper = at.results
    inner = apply(INVERSE, lower) @ at.tangents[0] @ apply(INVERSE, upper)
    return lower @ lower_part(inner, 1), upper_part(inner) @ upper


_INVERSE = (
    "np.array([np.append(-np.linalg.solve(a[:i, :i].T, a[i, :i]), np.eye(a.shape[0])[i, i:]) "
    "for i in np.arange(a.shape[0])])"
)
"""Text of L⁻¹, row by row: row i of L⁻¹ A vanishes left of column i."""


def _numpy(arguments: Sequence[str], parameters: Parameters, output: int) -> str:
    factor = (f"np.linalg.inv({_INVERSE})", f"np.triu({_INVERSE} @ a)")[output]
    return f"np.vectorize(lambda a: {factor}, otypes='d', signature='(n,n)->(n,n)')({arguments[0]})"


LU = register(
    Operation(
        name="lu",
        ranks=(2,),
        shapes=lambda cores, parameters: (square("lu", cores[0]),) * 2,
        value=lambda arguments, parameters: each_matrix(_factors, arguments),
        differential=_differential,
        numpy=_numpy,
        kernel="factors.unpivoted_lu",
        failure="a pivot is zero",
        facts=lambda arguments, output: frozenset({"upper"} if output else {"lower"}),
        domain=("dominant",),
        outputs=("L", "U"),
        notation=("luL", "luU"),
        letters=("L", "U"),
        description="""The factors of A = L U without exchange of rows.

A: a square matrix, with leading stacked axes if any. L is lower triangular with ones on its
diagonal, U upper triangular. Raises LinAlgError where a pivot is zero up to rounding: the pivots
are not chosen, so even an invertible matrix may have no such factors, or inaccurate ones.""",
    )
)
