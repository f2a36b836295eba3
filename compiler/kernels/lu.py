"""General linear systems: LU with partial pivoting, shared by solve, inverse and determinants.

LAPACK reads a row of ours as a column, so what is factored is the transposed matrix. What solves
and inverts takes factored matrices of which `lu_invertible` is true.
"""

# mypy: allow-untyped-defs

import numpy as np

from derivatrix.compiler.kernels.base import (
    NO,
    TRANSPOSED,
    compiled,
)
from derivatrix.compiler.kernels.lapack import lapack_getrf, lapack_getri, lapack_getrs
from derivatrix.compiler.kernels.triangular import SMALL, solve_columns, solve_rows


@compiled()
def lu_factor(lu, pivots):
    """Factor each matrix of `lu` (stack, n, n) in place; a zero pivot stays and means det = 0."""
    stack, n = pivots.shape
    info = np.empty(1, np.int32)
    for s in range(stack):
        if n > SMALL:
            lapack_getrf((n, n, lu[s], n, pivots[s], info))
            continue
        for k in range(n):
            chosen = k
            for j in range(k + 1, n):
                if abs(lu[s, k, j]) > abs(lu[s, k, chosen]):
                    chosen = j
            pivots[s, k] = chosen + 1
            for i in range(n):
                kept = lu[s, i, k]
                lu[s, i, k] = lu[s, i, chosen]
                lu[s, i, chosen] = kept
            if lu[s, k, k] != 0:
                for j in range(k + 1, n):
                    lu[s, k, j] /= lu[s, k, k]
            for i in range(k + 1, n):
                for j in range(k + 1, n):
                    lu[s, i, j] -= lu[s, k, j] * lu[s, i, k]


@compiled()
def lu_invertible(lu):
    """Whether no factored matrix of `lu` (stack, n, n) is singular."""
    stack, n, _ = lu.shape
    for s in range(stack):
        for i in range(n):
            if lu[s, i, i] == 0:
                return False
    return True


@compiled()
def lu_solve_rows(lu, pivots, b, transposed):
    """Replace each row x of `b` (stack, rows, n) by inv(A) x, or by inv(A)' x.

    LAPACK's solver is for one row only: for several it waits for threads, however small n is.
    """
    stack, rows, n = b.shape
    info = np.empty(1, np.int32)
    which = NO if transposed else TRANSPOSED
    for s in range(stack):
        if rows == 1 and n > SMALL:
            lapack_getrs((which, n, rows, lu[s], n, pivots[s], b[s], n, info))
        elif transposed:
            swap_columns(pivots[s], b[s], False)
            solve_rows(lu, b, s, False, True, True)
            solve_rows(lu, b, s, True, True, False)
        else:
            solve_rows(lu, b, s, True, False, False)
            solve_rows(lu, b, s, False, False, True)
            swap_columns(pivots[s], b[s], True)


@compiled()
def swap_columns(pivots, b, backwards):
    """Apply the row exchanges of an LU factorisation to each row of `b` (rows, n)."""
    n = pivots.shape[0]
    for i in range(b.shape[0]):
        for step in range(n):
            column = n - 1 - step if backwards else step
            other = pivots[column] - 1
            kept = b[i, column]
            b[i, column] = b[i, other]
            b[i, other] = kept


@compiled()
def swap_rows(pivots, b, backwards):
    """Apply the row exchanges of an LU factorisation to `b` (n, columns)."""
    n = pivots.shape[0]
    for step in range(n):
        row = n - 1 - step if backwards else step
        other = pivots[row] - 1
        if other != row:
            for j in range(b.shape[1]):
                kept = b[row, j]
                b[row, j] = b[other, j]
                b[other, j] = kept


@compiled()
def lu_solve_columns(lu, pivots, b, transposed):
    """Replace each column x of `b` (stack, n, columns) by inv(A) x, or by inv(A)' x."""
    for s in range(len(b)):
        if transposed:
            swap_rows(pivots[s], b[s], False)
            solve_columns(lu, b, s, False, True, True)
            solve_columns(lu, b, s, True, True, False)
        else:
            solve_columns(lu, b, s, True, False, False)
            solve_columns(lu, b, s, False, False, True)
            swap_rows(pivots[s], b[s], True)


@compiled()
def lu_inverse(lu, pivots, out):
    """out (stack, n, n) = the inverse of each factored matrix."""
    stack, n = pivots.shape
    info = np.empty(1, np.int32)
    work = np.empty(64 * n, out.dtype)
    for s in range(stack):
        for i in range(n):
            for j in range(n):
                out[s, i, j] = lu[s, i, j]
        if n > 0:
            lapack_getri((n, out[s], n, pivots[s], work, 64 * n, info))


@compiled()
def lu_det(lu, pivots, out):
    """out (stack,) = the determinant of each factored matrix."""
    stack, n = pivots.shape
    for s in range(stack):
        product = out.dtype.type(1)
        for i in range(n):
            product *= lu[s, i, i] if pivots[s, i] == i + 1 else -lu[s, i, i]
        out[s] = product


@compiled()
def lu_logabsdet(lu, pivots, out):
    """out (stack,) = log of the absolute value of the determinant."""
    stack, n = pivots.shape
    for s in range(stack):
        total = out.dtype.type(0)
        for i in range(n):
            total += np.log(abs(lu[s, i, i]))
        out[s] = total


@compiled()
def lu_logdet(lu, pivots, out):
    """out (stack,) = log of the determinant: -inf where it is zero, nan where it is negative."""
    lu_logabsdet(lu, pivots, out)
    stack, n = pivots.shape
    for s in range(stack):
        negative = False
        for i in range(n):
            negative ^= (lu[s, i, i] < 0) != (pivots[s, i] != i + 1)
        if negative and out[s] > -np.inf:
            out[s] = np.nan
