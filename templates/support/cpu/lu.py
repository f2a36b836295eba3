"""LU factors with partial pivoting of square matrices; systems, inverses and determinants.

LAPACK reads our rows as columns, so that the factors are those of the transposed matrix. Functions
that solve or invert require factors that `lu_invertible` accepts.
"""

# mypy: allow-untyped-defs, disable-error-code="call-arg, var-annotated"

import numpy as np
from numba import types

from ..internals.arithmetic import smallest_normal
from ..internals.functions import compiled, short_loop
from ..internals.memory import copy_entries, give_back, work_arrays
from .blas import INFO, LEFT, LOWER, NO, TRANSPOSED, UNIT, UPPER, blas_trsm, gemm_part
from .lapack import lapack_getrf, lapack_getri, lapack_getrs
from .panels import (
    MAX_MIDDLE_PANEL_ROWS,
    MAX_NARROW_PANEL_ROWS,
    MIDDLE_PANEL,
    NARROW_PANEL,
    WIDE_PANEL,
    solve_panel,
)
from .substitution import MIN_BLOCKED_ROWS, MIN_BLOCKED_SIDES, substitute
from .triangular import triangular_invertible, triangular_logabsdet

MAX_LU_LOOP_ROWS = 32
"""Up to this size, loops factor a matrix in less time than LAPACK: 12 rows in 350 ns instead of
560, 32 rows in 2,800 instead of 4,200. At 64 rows they would be equal."""
MAX_LU_PANEL_ROWS = 2000
"""Up to this size, panels of columns take less time than LAPACK's factorisation."""
MAX_SERIAL_ROWS = 450
"""Up to this size, one thread updates the rows below a panel."""
SERIAL_UPDATE_ROWS = 64
"""Number of rows that this thread updates at a time: for more, OpenBLAS starts threads, which would
wait for each other."""
MAX_SUBSTITUTION_ROWS = 12
"""Up to this size, substitution by loops, which the compiler cannot vectorise, takes less time than
LAPACK."""


@compiled()
def lu_factor(lu, pivots):
    """Factor each matrix of `lu` (stack, n, n) in place; a zero pivot stays and means det = 0."""
    stack, n = pivots.shape
    for s in range(stack):
        if n <= MAX_LU_LOOP_ROWS:
            factor_by_loops(lu[s], pivots[s])
        elif n <= MAX_LU_PANEL_ROWS:
            factor_by_panels(lu[s], pivots[s])
        else:
            lapack_getrf((n, n, lu[s], n, pivots[s], INFO))


@compiled(deferred=types.none)
def factor_by_panels(lu, pivots):
    """`lu_factor` for one matrix (n, n), by panels of columns."""
    n = len(lu)
    width = WIDE_PANEL
    if n <= MAX_MIDDLE_PANEL_ROWS:
        width = NARROW_PANEL if n <= MAX_NARROW_PANEL_ROWS else MIDDLE_PANEL
    rows = SERIAL_UPDATE_ROWS if n <= MAX_SERIAL_ROWS else n
    inverses, solved, memory = work_arrays(lu, ((n, width), (n, width)), ())
    for start in range(0, n, width):
        stop = min(start + width, n)
        corner = lu, start * (n + 1)
        lapack_getrf((n - start, stop - start, corner, n, (pivots, start), INFO))
        for k in range(start, stop):
            pivots[k] += start
        for i in range(n):
            if i < start or i >= stop:
                for step in range(stop - start):
                    # unsigned: a signed index could be negative, and Numba would check for that
                    column = np.uint64(start + step)
                    pivot = np.uint64(pivots[column] - 1)
                    lu[i, column], lu[i, pivot] = lu[i, pivot], lu[i, column]
        if stop < n:
            solve_panel(lu, start, True, inverses, solved)
            for first_column in range(0, width, NARROW_PANEL):
                for i in range(stop, n):
                    for j in range(first_column, first_column + NARROW_PANEL):
                        lu[i, start + j] = solved[i, j]
            for top in range(stop, n, rows):
                part = top, min(top + rows, n), stop, n, start, stop
                gemm_part(-1.0, lu, False, lu, False, 1.0, lu, part)
    give_back(memory)


@compiled()
def factor_by_loops(lu, pivots):
    """`lu_factor` for one small matrix (n, n)."""
    n = len(lu)
    one, least = lu.dtype.type(1), smallest_normal(lu)
    for k in range(n):
        pivot_column, pivot_size = k, abs(lu[k, k])
        for i in range(k + 1, n):
            if abs(lu[k, i]) > pivot_size:
                pivot_column, pivot_size = i, abs(lu[k, i])
        pivots[k] = pivot_column + 1
        if pivot_column != k:
            for j in range(n):
                short_loop(j)
                lu[j, k], lu[j, pivot_column] = lu[j, pivot_column], lu[j, k]
        pivot_row, pivot = lu[k, k + 1 :], lu[k, k]
        if 0 < pivot_size < least:  # the reciprocal may overflow
            for i in range(len(pivot_row)):
                short_loop(i)
                pivot_row[i] /= pivot
        reciprocal = one if pivot_size < least else one / pivot  # nan for nan: the row becomes nan
        for i in range(len(pivot_row)):
            pivot_row[i] *= reciprocal
        for j in range(k + 1, n):
            row, factor = lu[j, k + 1 :], lu[j, k]
            for i in range(len(row)):
                row[i] -= factor * pivot_row[i]


lu_invertible = triangular_invertible
"""Check that no factored matrix of `lu` (stack, n, n) is singular."""


@compiled()
def lu_solve_rows(lu, pivots, b, transposed):
    """Replace each row x of `b` (stack, rows, n) by inv(A) x, or by inv(A)' x."""
    _, rows, n = b.shape
    if rows < MIN_BLOCKED_SIDES and n < MIN_BLOCKED_ROWS:
        lu_solve_few_rows(lu, pivots, b, transposed)
        return
    for s in range(len(b)):
        if transposed:
            swap_columns(pivots[s], b[s], False)
            substitute(lu[s], b[s], True, UPPER, TRANSPOSED, UNIT)
            substitute(lu[s], b[s], True, LOWER, TRANSPOSED, NO)
        else:
            substitute(lu[s], b[s], True, LOWER, NO, NO)
            substitute(lu[s], b[s], True, UPPER, NO, UNIT)
            swap_columns(pivots[s], b[s], True)


@compiled()
def lu_solve_each_row(lu, pivots, b, transposed):
    """`lu_solve_rows` for one to three rows, one after the other."""
    stack, rows, n = b.shape
    transposition = NO if transposed else TRANSPOSED
    for s in range(stack):
        if n > MAX_SUBSTITUTION_ROWS:
            for row in range(rows):
                lapack_getrs((transposition, n, 1, lu[s], n, pivots[s], b[s, row], n, INFO))
            continue
        if transposed:
            swap_columns(pivots[s], b[s], False)
        for row in range(rows):
            if transposed:
                for k in range(n):
                    factor = b[s, row, k]
                    for i in range(k + 1, n):
                        short_loop(i)
                        b[s, row, i] -= factor * lu[s, k, i]
                for k in range(n - 1, -1, -1):
                    factor = b[s, row, k] / lu[s, k, k]
                    b[s, row, k] = factor
                    for i in range(k):
                        short_loop(i)
                        b[s, row, i] -= factor * lu[s, k, i]
            else:
                for k in range(n):
                    total = b[s, row, k]
                    for i in range(k):
                        short_loop(i)
                        total -= lu[s, k, i] * b[s, row, i]
                    b[s, row, k] = total / lu[s, k, k]
                for k in range(n - 1, -1, -1):
                    total = b[s, row, k]
                    for i in range(k + 1, n):
                        short_loop(i)
                        total -= lu[s, k, i] * b[s, row, i]
                    b[s, row, k] = total
        if not transposed:
            swap_columns(pivots[s], b[s], True)


@compiled()
def lu_solve_few_rows(lu, pivots, b, transposed):
    """`lu_solve_rows` without blocks, for few right-hand sides.

    LAPACK's solver takes one row only: for several it waits for threads, however small n is.
    """
    stack, rows, n = b.shape
    one = b.dtype.type(1)
    if rows == 1:
        lu_solve_each_row(lu, pivots, b, transposed)
        return
    for s in range(stack):
        if n == 0 or rows == 0:
            continue
        if transposed:
            swap_columns(pivots[s], b[s], False)
            blas_trsm((LEFT, LOWER, NO, UNIT, n, rows, one, lu[s], n, b[s], n))
            blas_trsm((LEFT, UPPER, NO, NO, n, rows, one, lu[s], n, b[s], n))
        else:
            blas_trsm((LEFT, UPPER, TRANSPOSED, NO, n, rows, one, lu[s], n, b[s], n))
            blas_trsm((LEFT, LOWER, TRANSPOSED, UNIT, n, rows, one, lu[s], n, b[s], n))
            swap_columns(pivots[s], b[s], True)


@compiled()
def swap_columns(pivots, b, backwards):
    """Apply the row exchanges of an LU factorisation to each row of `b` (rows, n)."""
    n = pivots.shape[0]
    for i in range(b.shape[0]):
        for step in range(n):
            column = n - 1 - step if backwards else step
            pivot = pivots[column] - 1
            b[i, column], b[i, pivot] = b[i, pivot], b[i, column]


@compiled()
def swap_rows(pivots, b, backwards):
    """Apply the row exchanges of an LU factorisation to `b` (n, columns)."""
    n = pivots.shape[0]
    for step in range(n):
        row = n - 1 - step if backwards else step
        pivot = pivots[row] - 1
        if pivot != row:
            for j in range(b.shape[1]):
                b[row, j], b[pivot, j] = b[pivot, j], b[row, j]


@compiled()
def lu_solve_columns(lu, pivots, b, transposed):
    """Replace each column x of `b` (stack, n, columns) by inv(A) x, or by inv(A)' x."""
    for s in range(len(b)):
        if transposed:
            swap_rows(pivots[s], b[s], False)
            substitute(lu[s], b[s], False, UPPER, TRANSPOSED, UNIT)
            substitute(lu[s], b[s], False, LOWER, TRANSPOSED, NO)
        else:
            substitute(lu[s], b[s], False, LOWER, NO, NO)
            substitute(lu[s], b[s], False, UPPER, NO, UNIT)
            swap_rows(pivots[s], b[s], True)


@compiled()
def lu_inverse(lu, pivots, out):
    """out (stack, n, n) = the inverse of each factored matrix."""
    stack, n = pivots.shape
    # loops would save 80 to 240 ns up to 16 rows, and take 0.3 s to compile
    work, memory = work_arrays(out, ((64 * n,),), ())
    copy_entries(lu, out)
    for s in range(stack):
        if n > 0:
            lapack_getri((n, out[s], n, pivots[s], work, 64 * n, INFO))
    give_back(memory)


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
    triangular_logabsdet(lu, out)


@compiled()
def lu_logdet(lu, pivots, out):
    """out (stack,) = log of the determinant: -inf where it is zero, nan where it is negative."""
    lu_logabsdet(lu, pivots, out)
    stack, n = pivots.shape
    for s in range(stack):
        is_negative = False
        for i in range(n):
            is_negative ^= (lu[s, i, i] < 0) != (pivots[s, i] != i + 1)
        if is_negative and out[s] > -np.inf:
            out[s] = np.nan
