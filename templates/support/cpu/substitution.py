"""Triangular systems: by BLAS's trsm for few right-hand sides, else block by block, by products
with the inverses of the diagonal blocks, which takes a third of the time.

The errors are no larger: each block is inverted by substitution (Du Croz and Higham 1992).
"""

# mypy: allow-untyped-defs, disable-error-code=call-arg

import numpy as np

from ..internals.functions import compiled
from .base import LEFT, LOWER, NO, RIGHT, TRANSPOSED, UNIT, UPPER
from .blas import blas_trsm, gemm, gemm_part

BLOCK_ROWS = 32
"""Number of rows of a diagonal block."""
SIDES = 256
"""Number of right-hand sides solved at a time, so that they stay in the cache."""
MIN_BLOCKED_SIDES = 16
"""Fewest right-hand sides for which the inverses of blocks pay."""
MIN_BLOCKED_ROWS = 256
"""Fewest unknowns for which they pay for any number of right-hand sides."""


@compiled(counted=True)
def substitute_rows(a, b, triangle, transposition, diagonal):
    """Replace each row x of `b` (rows, n) by inv(A) x, or by inv(A)' x if `transposition` is
    TRANSPOSED.

    triangle: whether A is LOWER or UPPER triangular; diagonal: UNIT for a diagonal of ones, else
    NO."""
    rows, n = b.shape
    if rows < MIN_BLOCKED_SIDES and n < MIN_BLOCKED_ROWS:
        if rows > 0 and n > 0:
            opposite = NO if transposition == TRANSPOSED else TRANSPOSED
            flags = LEFT, opposite_triangle(triangle), opposite, diagonal
            blas_trsm((*flags, n, rows, b.dtype.type(1), a, n, b, n))
        return
    forward = (triangle == LOWER) != (transposition == TRANSPOSED)
    inverses = diagonal_inverses(a, triangle, diagonal)
    copies = np.empty((min(rows, SIDES), BLOCK_ROWS), b.dtype)
    for first_side in range(0, rows, SIDES):
        last_side = min(first_side + SIDES, rows)
        for step in range(0, n, BLOCK_ROWS):
            start, stop, solved_start, solved_stop = diagonal_block(n, step, forward)
            if solved_start < solved_stop:
                ranges = (first_side, last_side, start, stop, solved_start, solved_stop)
                gemm_part(-1.0, b, False, a, transposition != TRANSPOSED, 1.0, b, ranges)
            for i in range(first_side, last_side):
                for j in range(start, stop):
                    copies[i - first_side, j - start] = b[i, j]
            sides = copies[: last_side - first_side, : stop - start]
            inverse = inverses[start:stop, : stop - start]
            gemm(1.0, sides, False, inverse, forward, 0.0, b[first_side:last_side, start:stop])


@compiled(counted=True)
def substitute_columns(a, b, triangle, transposition, diagonal):
    """`substitute_rows` for each column x of `b` (n, columns)."""
    n, columns = b.shape
    if columns < MIN_BLOCKED_SIDES and n < MIN_BLOCKED_ROWS:
        if columns > 0 and n > 0:
            flags = RIGHT, opposite_triangle(triangle), transposition, diagonal
            blas_trsm((*flags, columns, n, b.dtype.type(1), a, n, b, columns))
        return
    forward = (triangle == LOWER) != (transposition == TRANSPOSED)
    inverses = diagonal_inverses(a, triangle, diagonal)
    copies = np.empty((BLOCK_ROWS, min(columns, SIDES)), b.dtype)
    for first_side in range(0, columns, SIDES):
        last_side = min(first_side + SIDES, columns)
        for step in range(0, n, BLOCK_ROWS):
            start, stop, solved_start, solved_stop = diagonal_block(n, step, forward)
            if solved_start < solved_stop:
                ranges = (start, stop, first_side, last_side, solved_start, solved_stop)
                gemm_part(-1.0, a, transposition == TRANSPOSED, b, False, 1.0, b, ranges)
            for i in range(start, stop):
                for j in range(first_side, last_side):
                    copies[i - start, j - first_side] = b[i, j]
            sides = copies[: stop - start, : last_side - first_side]
            inverse = inverses[start:stop, : stop - start]
            gemm(1.0, inverse, not forward, sides, False, 0.0, b[start:stop, first_side:last_side])


@compiled(linked=True)
def opposite_triangle(triangle):
    """The name of the triangle for BLAS, which reads our rows as columns."""
    return UPPER if triangle == LOWER else LOWER


@compiled(linked=True)
def diagonal_block(n, step, forward):
    """The range of the next diagonal block, and the range of the unknowns that are solved before
    it."""
    if forward:
        return step, min(step + BLOCK_ROWS, n), 0, step
    start = (n - 1 - step) // BLOCK_ROWS * BLOCK_ROWS
    stop = min(start + BLOCK_ROWS, n)
    return start, stop, stop, n


@compiled(counted=True)
def diagonal_inverses(a, triangle, diagonal):
    """The inverses of the diagonal blocks of a triangular matrix (n, n), one below the other, as
    lower triangles: those of an upper matrix are transposed."""
    n = a.shape[0]
    inverses = np.zeros((n, BLOCK_ROWS), a.dtype)
    for start in range(0, n, BLOCK_ROWS):
        for i in range(start, min(start + BLOCK_ROWS, n)):
            reciprocal = a.dtype.type(1)
            if diagonal != UNIT:
                reciprocal /= a[i, i]
            for k in range(start, i):
                factor = (a[i, k] if triangle == LOWER else a[k, i]) * reciprocal
                for j in range(k - start + 1):
                    inverses[i, j] -= factor * inverses[k, j]
            inverses[i, i - start] = reciprocal
    return inverses
