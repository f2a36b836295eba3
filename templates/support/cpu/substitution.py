"""Triangular systems: by BLAS's trsm for few right-hand sides, else block by block, by products
with the inverses of the diagonal blocks, which takes a third of the time.

The errors are no larger: each block is inverted by substitution (Du Croz and Higham 1992).
"""

# mypy: allow-untyped-defs, disable-error-code=call-arg

from numba import types

from ..internals.functions import compiled
from ..internals.memory import empty, zeros
from .blas import LEFT, LOWER, NO, RIGHT, TRANSPOSED, UNIT, UPPER, blas_trsm, gemm, gemm_part

BLOCK_ROWS = 32
"""Number of rows of a diagonal block."""
MAX_SIDES = 256
"""Most right-hand sides solved at a time, so that they stay in the cache."""
MIN_BLOCKED_SIDES = 16
"""Fewest right-hand sides for which the inverses of blocks pay."""
MIN_BLOCKED_ROWS = 256
"""Fewest unknowns for which they pay for any number of right-hand sides."""


@compiled()
def substitute(a, b, in_rows, triangle, transposition, diagonal):
    """Replace each right-hand side x by inv(A) x, or by inv(A)' x if `transposition` is TRANSPOSED.

    in_rows: whether each x is a row of `b` (sides, n), else it is a column of `b` (n, sides);
    triangle: whether A is LOWER or UPPER triangular; diagonal: UNIT for a diagonal of ones, else
    NO."""
    n, sides = len(a), b.shape[0] if in_rows else b.shape[1]
    transposed, real = transposition == TRANSPOSED, b.dtype.type
    if sides < MIN_BLOCKED_SIDES and n < MIN_BLOCKED_ROWS:
        if sides > 0 and n > 0:
            stored = UPPER if triangle == LOWER else LOWER  # BLAS reads our rows as columns
            if in_rows:
                opposite = NO if transposed else TRANSPOSED
                blas_trsm((LEFT, stored, opposite, diagonal, n, sides, real(1), a, n, b, n))
            else:
                blas_trsm(
                    (RIGHT, stored, transposition, diagonal, sides, n, real(1), a, n, b, sides)
                )
    else:
        substitute_blocks(a, b, in_rows, triangle, transposition, diagonal)


@compiled(counted=True, deferred=types.none)
def substitute_blocks(a, b, in_rows, triangle, transposition, diagonal):
    """`substitute` block by block."""
    n, sides = len(a), b.shape[0] if in_rows else b.shape[1]
    transposed = transposition == TRANSPOSED
    forward = (triangle == LOWER) != transposed
    inverses = diagonal_inverses(a, triangle, diagonal)
    max_sides = min(sides, MAX_SIDES)
    copies = empty((max_sides, BLOCK_ROWS) if in_rows else (BLOCK_ROWS, max_sides), b.dtype)
    for first in range(0, sides, MAX_SIDES):
        last = min(first + MAX_SIDES, sides)
        for step in range(0, n, BLOCK_ROWS):
            start, stop, solved_start, solved_stop = diagonal_block(n, step, forward)
            block = b[first:last, start:stop] if in_rows else b[start:stop, first:last]
            if solved_start < solved_stop:
                if in_rows:
                    ranges = (first, last, start, stop, solved_start, solved_stop)
                    gemm_part(-1.0, b, False, a, not transposed, 1.0, b, ranges)
                else:
                    ranges = (start, stop, first, last, solved_start, solved_stop)
                    gemm_part(-1.0, a, transposed, b, False, 1.0, b, ranges)
            copy = copies[: block.shape[0], : block.shape[1]]
            for i in range(block.shape[0]):
                for j in range(block.shape[1]):
                    copy[i, j] = block[i, j]
            inverse = inverses[start:stop, : stop - start]
            if in_rows:
                gemm(1.0, copy, False, inverse, forward, 0.0, block)
            else:
                gemm(1.0, inverse, not forward, copy, False, 0.0, block)


@compiled(linked=True)
def diagonal_block(n, step, forward):
    """Return the range of the next diagonal block, and the range of the unknowns that are solved
    before it."""
    if forward:
        return step, min(step + BLOCK_ROWS, n), 0, step
    start = (n - 1 - step) // BLOCK_ROWS * BLOCK_ROWS
    stop = min(start + BLOCK_ROWS, n)
    return start, stop, stop, n


@compiled(counted=True)
def diagonal_inverses(a, triangle, diagonal):
    """Compute the inverses of the diagonal blocks of a triangular matrix (n, n), one below the
    other, as lower triangles: those of an upper matrix are transposed."""
    n = a.shape[0]
    inverses = zeros((n, BLOCK_ROWS), a.dtype)
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
