"""Cholesky factors A = L L' of positive definite matrices; systems, inverses and determinants."""

# mypy: allow-untyped-defs, disable-error-code="call-arg, var-annotated"

import numpy as np
from numba import types

from ..internals.functions import compiled, short_loop
from ..internals.memory import give_back, work_arrays
from .blas import INFO, LOWER, NO, TRANSPOSED, UPPER, gemm_part, mirror
from .lapack import lapack_potrf, lapack_potrs
from .panels import MAX_NARROW_PANEL_ROWS, MIDDLE_PANEL, NARROW_PANEL, solve_panel
from .substitution import MIN_BLOCKED_ROWS, MIN_BLOCKED_SIDES, substitute
from .triangular import INVERSE_BLOCK_ROWS, triangular_inverse, triangular_logabsdet

MAX_CHOLESKY_LOOP_ROWS = 8
"""Up to this size, loops take less time than a call of LAPACK: 80 ns for a factor of 3 rows, 150 ns
for a solution."""
MIN_CHOLESKY_PANEL_ROWS, MAX_CHOLESKY_PANEL_ROWS = 33, 750
"""Sizes between which panels of columns take less time than LAPACK."""
UPDATE_ROWS = 32
"""Number of rows below a panel that are updated at a time: more would compute too much of the upper
triangle."""


@compiled()
def cholesky_factor(lower):
    """Replace each matrix of `lower` (stack, n, n) by its factor L; the upper triangle is
    overwritten.

    False where a matrix is not positive definite.
    """
    stack, n, _ = lower.shape
    info = work_arrays(lower, (), ((1,),))[0]  # on the stack
    for s in range(stack):
        if n <= MAX_CHOLESKY_LOOP_ROWS:
            is_definite = cholesky_block(lower[s], 0, n)
        elif MIN_CHOLESKY_PANEL_ROWS <= n <= MAX_CHOLESKY_PANEL_ROWS:
            is_definite = cholesky_by_panels(lower[s])
        else:
            lapack_potrf((UPPER, n, lower[s], n, info))
            is_definite = info[0] == 0
        if not is_definite:
            return False
    return True


@compiled(deferred=types.boolean)
def cholesky_by_panels(lower):
    """`cholesky_factor` for one matrix (n, n), by panels of columns.

    The part above the diagonal blocks becomes L', so that no product has its sums along the rows of
    both factors."""
    n = len(lower)
    width = NARROW_PANEL if n <= MAX_NARROW_PANEL_ROWS else MIDDLE_PANEL
    inverses, solved, memory = work_arrays(lower, ((n, width), (n, width)), ())
    is_definite = True
    for start in range(0, n, width):
        stop = min(start + width, n)
        if not cholesky_block(lower, start, stop):
            is_definite = False
            break
        if stop < n:
            for i in range(start, stop):
                for j in range(start, i):
                    lower[j, i] = lower[i, j]
            solve_panel(lower, start, False, inverses, solved)
            for first_column in range(0, width, NARROW_PANEL):
                for i in range(stop, n):
                    for j in range(first_column, first_column + NARROW_PANEL):
                        lower[i, start + j] = lower[start + j, i] = solved[i, j]
            for top in range(stop, n, UPDATE_ROWS):
                bottom = min(top + UPDATE_ROWS, n)
                part = top, bottom, stop, bottom, start, stop
                gemm_part(-1.0, lower, False, lower, False, 1.0, lower, part)
    give_back(memory)
    return is_definite


@compiled()
def cholesky_block(lower, start, stop):
    """Factor the diagonal block from `start` to `stop`."""
    one = lower.dtype.type(1)
    for k in range(start, stop):
        if lower[k, k] <= 0:
            return False
        lower[k, k] = np.sqrt(lower[k, k])
        reciprocal = one / lower[k, k]
        for i in range(k + 1, stop):
            short_loop(i)
            lower[i, k] *= reciprocal
        for i in range(k + 1, stop):
            factor = lower[i, k]
            for j in range(k + 1, i + 1):
                short_loop(j)
                lower[i, j] -= factor * lower[j, k]
    return True


@compiled()
def cholesky_solve_rows(lower, b):
    """Replace each row x of `b` (stack, rows, n) by inv(A) x."""
    _, rows, n = b.shape
    if rows < MIN_BLOCKED_SIDES and n < MIN_BLOCKED_ROWS:
        cholesky_solve_few_rows(lower, b)
        return
    for s in range(len(b)):
        for transposition in (NO, TRANSPOSED):
            substitute(lower[s], b[s], True, LOWER, transposition, NO)


@compiled()
def cholesky_solve_few_rows(lower, b):
    """`cholesky_solve_rows` without blocks, for few right-hand sides."""
    stack, rows, n = b.shape
    for s in range(stack):
        if n > MAX_CHOLESKY_LOOP_ROWS and rows > 0:
            lapack_potrs((UPPER, n, rows, lower[s], n, b[s], n, INFO))
            continue
        for row in range(rows):
            for i in range(n):
                total = b[s, row, i]
                for k in range(i):
                    total -= lower[s, i, k] * b[s, row, k]
                b[s, row, i] = total / lower[s, i, i]
            for i in range(n - 1, -1, -1):
                total = b[s, row, i]
                for k in range(i + 1, n):
                    total -= lower[s, k, i] * b[s, row, k]
                b[s, row, i] = total / lower[s, i, i]


@compiled()
def cholesky_solve_columns(lower, b):
    """Replace each column x of `b` (stack, n, columns) by inv(A) x."""
    for s in range(len(b)):
        for transposition in (NO, TRANSPOSED):
            substitute(lower[s], b[s], False, LOWER, transposition, NO)


@compiled()
def cholesky_inverse(lower, out):
    """out (stack, n, n) = the inverse of each factored matrix: X' X with X the inverse of L.

    LAPACK's potri takes three times as long, and waits for threads at every size."""
    stack, n, _ = lower.shape
    x, memory = work_arrays(out, ((1, n, n),), ())
    for s in range(stack):
        triangular_inverse(lower[s : s + 1], x, True)
        for start in range(0, n, INVERSE_BLOCK_ROWS):
            stop = min(start + INVERSE_BLOCK_ROWS, n)
            part = start, stop, 0, stop, start, n
            gemm_part(1.0, x[0], True, x[0], False, 0.0, out[s], part)
        mirror(out[s])
    give_back(memory)


@compiled()
def cholesky_det(lower, out):
    """out (stack,) = the determinant of each factored matrix."""
    stack, n, _ = lower.shape
    for s in range(stack):
        product = out.dtype.type(1)
        for i in range(n):
            product *= lower[s, i, i] * lower[s, i, i]
        out[s] = product


@compiled()
def cholesky_logdet(lower, out):
    """out (stack,) = log of the determinant of each factored matrix."""
    triangular_logabsdet(lower, out)
    for s in range(len(out)):
        out[s] += out[s]
