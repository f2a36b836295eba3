"""Triangular systems of equations: by BLAS's substitution for few right-hand sides, else block by
block, by products with the inverses of the blocks on the diagonal, which takes a third of the time.

The errors are no larger: each block is inverted by substitution (Du Croz and Higham 1992).
"""

# mypy: allow-untyped-defs, disable-error-code=call-arg

import numpy as np

from ..internals.functions import compiled
from .base import LEFT, LOWER, NO, RIGHT, TRANSPOSED, UNIT, UPPER
from .blas import blas_trsm, gemm, gemm_part

WIDTH = 32
"""How many rows the blocks on the diagonal have."""
CHUNK = 256
"""How many right-hand sides are computed at a time, so that they stay in the cache."""
SEVERAL = 16
"""The least right-hand sides that are worth the inverses of blocks."""
LONG = 256
"""The least entries of a right-hand side for which a few of them are."""


@compiled(counted=True)
def substitute_rows(a, b, triangle, which, diagonal):
    """Replace each row x of `b` (rows, n) by inv(A) x, or by inv(A)' x if `which` is TRANSPOSED,
    for a matrix A that is LOWER or UPPER triangular, with a diagonal of ones if that is UNIT."""
    rows, n = b.shape
    if rows < SEVERAL and n < LONG:
        if rows > 0 and n > 0:
            turned, other = turned_triangle(triangle), NO if which == TRANSPOSED else TRANSPOSED
            blas_trsm((LEFT, turned, other, diagonal, n, rows, b.dtype.type(1), a, n, b, n))
        return
    forward = (triangle == LOWER) != (which == TRANSPOSED)
    inverses = diagonal_inverses(a, triangle, diagonal)
    kept = np.empty((min(rows, CHUNK), WIDTH), b.dtype)
    for top in range(0, rows, CHUNK):
        bottom = min(top + CHUNK, rows)
        for step in range(0, n, WIDTH):
            start, stop, first, last = block(n, step, forward)
            if first < last:
                known = (top, bottom, start, stop, first, last)
                gemm_part(-1.0, b, False, a, which != TRANSPOSED, 1.0, b, known)
            for i in range(top, bottom):
                for j in range(start, stop):
                    kept[i - top, j - start] = b[i, j]
            given = kept[: bottom - top, : stop - start]
            inverse = inverses[start:stop, : stop - start]
            gemm(1.0, given, False, inverse, forward, 0.0, b[top:bottom, start:stop])


@compiled(counted=True)
def substitute_columns(a, b, triangle, which, diagonal):
    """Replace each column x of `b` (n, columns) so; see `substitute_rows`."""
    n, columns = b.shape
    if columns < SEVERAL and n < LONG:
        if columns > 0 and n > 0:
            turned, one = turned_triangle(triangle), b.dtype.type(1)
            blas_trsm((RIGHT, turned, which, diagonal, columns, n, one, a, n, b, columns))
        return
    forward = (triangle == LOWER) != (which == TRANSPOSED)
    inverses = diagonal_inverses(a, triangle, diagonal)
    kept = np.empty((WIDTH, min(columns, CHUNK)), b.dtype)
    for left in range(0, columns, CHUNK):
        right = min(left + CHUNK, columns)
        for step in range(0, n, WIDTH):
            start, stop, first, last = block(n, step, forward)
            if first < last:
                known = (start, stop, left, right, first, last)
                gemm_part(-1.0, a, which == TRANSPOSED, b, False, 1.0, b, known)
            for i in range(start, stop):
                for j in range(left, right):
                    kept[i - start, j - left] = b[i, j]
            given = kept[: stop - start, : right - left]
            inverse = inverses[start:stop, : stop - start]
            gemm(1.0, inverse, not forward, given, False, 0.0, b[start:stop, left:right])


@compiled(linked=True)
def turned_triangle(triangle):
    """What BLAS calls the triangle: it has columns where we have rows."""
    return UPPER if triangle == LOWER else LOWER


@compiled(linked=True)
def block(n, step, forward):
    """Where a block starts and stops, and where the unknowns start and stop that are known then."""
    if forward:
        return step, min(step + WIDTH, n), 0, step
    start = (n - 1 - step) // WIDTH * WIDTH
    stop = min(start + WIDTH, n)
    return start, stop, stop, n


@compiled(counted=True)
def diagonal_inverses(a, triangle, diagonal):
    """The inverses of the blocks on the diagonal of a triangular matrix (n, n) one below the other,
    each lower triangular: that of an upper matrix is transposed."""
    n = a.shape[0]
    inverses = np.zeros((n, WIDTH), a.dtype)
    for start in range(0, n, WIDTH):
        for i in range(start, min(start + WIDTH, n)):
            reciprocal = a.dtype.type(1)
            if diagonal != UNIT:
                reciprocal /= a[i, i]
            for k in range(start, i):
                factor = (a[i, k] if triangle == LOWER else a[k, i]) * reciprocal
                for j in range(k - start + 1):
                    inverses[i, j] -= factor * inverses[k, j]
            inverses[i, i - start] = reciprocal
    return inverses
