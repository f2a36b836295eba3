"""BLAS: its routines, each named once, and matrix products through it."""

# mypy: allow-untyped-defs, disable-error-code="call-arg, var-annotated"

import numpy as np

from ..internals.arithmetic import matrix_product
from ..internals.functions import compiled, routine
from ..internals.memory import give_back, work_arrays
from .base import LOWER, NO, TRANSPOSED, UPPER, WHOLE

SPLIT = 192
"""The least rows of a symmetric product of singles of which one triangle alone is computed; half as
many of doubles."""
LEAST, MOST = 24, 16
"""The least rows of a block of a product with a triangular matrix, and the most blocks."""
WIDE = 128
"""About how many rows the blocks of a large symmetric product have."""
UNPACKED = 1_000_000
"""The multiplications of a block from which on OpenBLAS copies what it multiplies."""
TILE = 32
"""The rows and columns of the tiles by which triangles are mirrored."""
GRAM = 384
"""The least rows for which BLAS's product of a matrix and its transpose is faster than blocks."""
HELD = 256
"""How many rows of weighted samples are multiplied at a time, so that they stay in the cache."""

gemm = matrix_product(parts=False)
gemm_part = matrix_product(parts=True)
blas_syrk = routine("blas", "syrk")
blas_trsm = routine("blas", "trsm")


@compiled()
def structured_gemm(alpha, a, transpose_a, b, transpose_b, beta, c, left, right, part):
    """`gemm` that leaves out zeros, by blocks of rows of c, or of columns where only op(b) is
    triangular. left, right: op(a) and op(b) are LOWER or UPPER triangular, or WHOLE. part: WHOLE,
    or LOWER where c is wanted on and below the diagonal only; beta is 0 or 1.
    """
    rows, columns = c.shape
    inner = a.shape[0] if transpose_a else a.shape[1]
    by_rows = left != WHOLE or part == LOWER
    length = rows if by_rows else columns
    block = max(LEAST, (length + MOST - 1) // MOST)
    if part == LOWER and left == WHOLE and right == WHOLE and LEAST * rows * inner > UNPACKED:
        count = max(rows // WIDE, 4 if c.itemsize == 8 else 2)
        block = (rows // count + 8) // 8 * 8
    for start in range(0, length, block):
        stop = min(start + block, length)
        top, bottom, begin, end, first, last = 0, rows, 0, columns, 0, inner
        if by_rows:
            top, bottom = start, stop
            if left == UPPER:
                first = start
            if left == LOWER:
                last = stop
            if part == LOWER:
                end = stop
        else:
            begin, end = start, stop
        if right == LOWER:
            end = min(end, last) if by_rows else end
            first = max(first, begin)
        if right == UPPER:
            begin = max(begin, first) if by_rows else begin
            last = min(last, end)
        if beta == 0 and by_rows:
            wanted = stop if part == LOWER else columns
            for i in range(top, bottom):
                for j in range(begin):
                    c[i, j] = 0
                for j in range(end, wanted):
                    c[i, j] = 0
        ranges = (top, bottom, begin, end, first, last)
        gemm_part(alpha, a, transpose_a, b, transpose_b, beta, c, ranges)


@compiled()
def symmetric_gemm(alpha, a, transpose_a, b, transpose_b, beta, c, left, right):
    """`structured_gemm` where c comes out symmetric: its lower triangle, and mirrored."""
    least = SPLIT if c.itemsize == 4 else SPLIT // 2
    if c.shape[0] < least and left == WHOLE and right == WHOLE:
        gemm(alpha, a, transpose_a, b, transpose_b, beta, c)
    else:
        structured_gemm(alpha, a, transpose_a, b, transpose_b, beta, c, left, right, LOWER)
        mirror(c)


@compiled(linked=True)
def packs(n, inner):
    """Whether symmetric products of n rows are so large that OpenBLAS copies what it multiplies."""
    return n >= GRAM and LEAST * n * inner > UNPACKED


@compiled()
def gram(alpha, a, transpose_a, beta, c):
    """c (n, n) = alpha * op(a) @ op(a)' + beta * c, where c was symmetric."""
    n, columns = c.shape[0], a.shape[1]
    inner = a.shape[0] if transpose_a else columns
    if packs(n, inner):
        trans = NO if transpose_a else TRANSPOSED
        blas_syrk((UPPER, trans, n, inner, alpha, a, columns, beta, c, n))
        mirror(c)
    else:
        symmetric_gemm(alpha, a, transpose_a, a, not transpose_a, beta, c, WHOLE, WHOLE)


@compiled()
def weighted_gram(a, weights, add, c):
    """c (n, n) = a' diag(weights) a, or += where c was symmetric, for a (samples, n). The samples
    of negative weights come last, and are taken off.
    """
    samples, n = a.shape
    beta = 1.0 if add else 0.0
    if not packs(n, samples):
        scaled, memory = work_arrays(a, ((samples, n),), ())
        for s in range(samples):
            for j in range(n):
                scaled[s, j] = weights[s] * a[s, j]
        symmetric_gemm(1.0, a, True, scaled, False, beta, c, WHOLE, WHOLE)
        give_back(memory)
        return
    scaled, memory = work_arrays(a, ((HELD, n),), ())
    for start in range(0, samples, HELD):
        count = min(HELD, samples - start)
        first, last = 0, count
        for s in range(start, start + count):
            if weights[s] < 0:
                last -= 1
            place = last if weights[s] < 0 else first
            root = np.sqrt(abs(weights[s]))
            for j in range(n):
                scaled[place, j] = root * a[s, j]
            if not weights[s] < 0:
                first += 1
        blas_syrk((UPPER, NO, n, first, 1.0, scaled, n, beta, c, n))
        blas_syrk((UPPER, NO, n, count - last, -1.0, scaled[last:], n, 1.0, c, n))
        beta = 1.0
    mirror(c)
    give_back(memory)


@compiled()
def spread_triangles(packed, whole):
    """Symmetric matrices `whole` (stack, n, n) from their lower triangles, row by row (stack,
    n (n + 1) / 2)."""
    stack, n, _ = whole.shape
    for s in range(stack):
        place = 0
        for i in range(n):
            for j in range(i + 1):
                whole[s, i, j] = whole[s, j, i] = packed[s, place]
                place += 1


@compiled()
def mirror(c):
    """Copy the lower triangle of c (n, n) to the upper one, tile by tile."""
    n = c.shape[0]
    for top in range(0, n, TILE):
        for left in range(0, top + 1, TILE):
            for i in range(top, min(top + TILE, n)):
                for j in range(left, min(left + TILE, i)):
                    c[j, i] = c[i, j]
