"""Matrix products through BLAS, and the flags of BLAS and LAPACK, by which our own helpers describe
triangles and transposes, too."""

# mypy: allow-untyped-defs, disable-error-code="call-arg, var-annotated"

import numpy as np
from numba import types

from ..internals.arithmetic import matrix_product
from ..internals.functions import compiled, routine
from ..internals.memory import give_back, work_arrays

NO = np.uint8(ord("N"))
TRANSPOSED = np.uint8(ord("T"))
LEFT = np.uint8(ord("L"))
RIGHT = np.uint8(ord("R"))
LOWER = np.uint8(ord("L"))
UPPER = np.uint8(ord("U"))
UNIT = np.uint8(ord("U"))
VECTORS = np.uint8(ord("V"))
INFO = 0
"""Stands for LAPACK's error code where nothing reads it: the call passes a variable of its own."""
WHOLE = np.uint8(ord("W"))
MIN_TRIANGLE_ROWS = 192
"""A symmetric product in float32 with at least this many rows is computed as one triangle and
mirrored; in float64 with half as many."""
MIN_BLOCK_ROWS, MAX_BLOCKS = 24, 16
"""Smallest blocks, and largest number of blocks, of a product with a triangular matrix."""
WIDE_BLOCK_ROWS = 128
"""Approximate height of the blocks of a large symmetric product."""
MAX_UNPACKED_OPS = 1_000_000
"""OpenBLAS copies the operands of products with more multiplications."""
TILE = 32
"""Rows and columns of the tiles in which a triangle is mirrored, so that both stay in the cache."""
MIN_SYRK_ROWS = 384
"""Fewest rows for which BLAS's syrk is faster than blocks of gemm, also where BLAS has threads:
below, OpenBLAS shares it out so badly that two threads take 1.2 times as long."""
MIN_WEIGHTED_SYRK_ROWS = 24
"""Fewest rows of weighted Gram matrices for which `syrk` pays with one thread of BLAS, as where
threads of ours share the samples. Below 20 rows gemm is 1.1 to 1.25 times as fast."""
WEIGHTED_ROWS = 256
"""Number of weighted samples multiplied at a time: their scaled copy stays in the cache."""

gemm = matrix_product(parts=False)
gemm_part = matrix_product(parts=True)
blas_syrk = routine("blas", "syrk")
blas_trsm = routine("blas", "trsm")


@compiled(deferred=types.none)
def structured_gemm(alpha, a, transpose_a, b, transpose_b, beta, c, left, right, part):
    """`gemm` without multiplications by structural zeros, by blocks of rows of c, or of columns
    where only op(b) is triangular. BLAS's trmm is no faster for one triangle, and slower for two.

    left, right: whether op(a) and op(b) are LOWER or UPPER triangular, or WHOLE. part: LOWER to
    compute only the lower triangle of c, else WHOLE. beta: 0 or 1.
    """
    rows, columns = c.shape
    inner = a.shape[0] if transpose_a else a.shape[1]
    by_rows = left != WHOLE or part == LOWER
    length = rows if by_rows else columns
    block = max(MIN_BLOCK_ROWS, (length + MAX_BLOCKS - 1) // MAX_BLOCKS)
    if (
        part == LOWER
        and left == WHOLE
        and right == WHOLE
        and MIN_BLOCK_ROWS * rows * inner > MAX_UNPACKED_OPS
    ):
        count = max(rows // WIDE_BLOCK_ROWS, 4 if c.itemsize == 8 else 2)
        block = (rows // count + 8) // 8 * 8
    for start in range(0, length, block):
        stop = min(start + block, length)
        top, bottom, begin, end, inner_begin, inner_end = 0, rows, 0, columns, 0, inner
        if by_rows:
            top, bottom = start, stop
            if left == UPPER:
                inner_begin = start
            if left == LOWER:
                inner_end = stop
            if part == LOWER:
                end = stop
        else:
            begin, end = start, stop
        if right == LOWER:
            end = min(end, inner_end) if by_rows else end
            inner_begin = max(inner_begin, begin)
        if right == UPPER:
            begin = max(begin, inner_begin) if by_rows else begin
            inner_end = min(inner_end, end)
        if beta == 0 and by_rows:
            row_end = stop if part == LOWER else columns
            for i in range(top, bottom):
                for j in range(begin):
                    c[i, j] = 0
                for j in range(end, row_end):
                    c[i, j] = 0
        ranges = (top, bottom, begin, end, inner_begin, inner_end)
        gemm_part(alpha, a, transpose_a, b, transpose_b, beta, c, ranges)


@compiled()
def symmetric_gemm(alpha, a, transpose_a, b, transpose_b, beta, c, left, right):
    """`structured_gemm` for a symmetric c: compute its lower triangle and mirror it."""
    min_rows = MIN_TRIANGLE_ROWS if c.itemsize == 4 else MIN_TRIANGLE_ROWS // 2
    if c.shape[0] < min_rows and left == WHOLE and right == WHOLE:
        gemm(alpha, a, transpose_a, b, transpose_b, beta, c)
    else:
        structured_gemm(alpha, a, transpose_a, b, transpose_b, beta, c, left, right, LOWER)
        mirror(c)


@compiled()
def gram(alpha, a, transpose_a, beta, c):
    """c (n, n) = alpha * op(a) @ op(a)' + beta * c, for a symmetric c."""
    n, columns = c.shape[0], a.shape[1]
    inner = a.shape[0] if transpose_a else columns
    # OpenBLAS would copy the operands of blocks for each of them
    if n >= MIN_SYRK_ROWS and MIN_BLOCK_ROWS * n * inner > MAX_UNPACKED_OPS:
        trans = NO if transpose_a else TRANSPOSED
        blas_syrk((UPPER, trans, n, inner, alpha, a, columns, beta, c, n))
        mirror(c)
    else:
        symmetric_gemm(alpha, a, transpose_a, a, not transpose_a, beta, c, WHOLE, WHOLE)


@compiled()
def weighted_gram(a, weights, add, c):
    """c (n, n) = a' diag(weights) a for a (samples, n); added to a symmetric c if `add`.

    syrk takes square roots of the weights: a block's samples of negative weight are put last, and
    their product is subtracted.
    """
    samples, n = a.shape
    beta = 1.0 if add else 0.0
    if n < MIN_WEIGHTED_SYRK_ROWS:
        scaled, memory = work_arrays(a, ((samples, n),), ())
        for s in range(samples):
            for j in range(n):
                scaled[s, j] = weights[s] * a[s, j]
        gemm(1.0, a, True, scaled, False, beta, c)
        give_back(memory)
        return
    scaled, memory = work_arrays(a, ((WEIGHTED_ROWS, n),), ())
    for start in range(0, max(samples, 1), WEIGHTED_ROWS):  # syrk also clears c for no samples
        count = min(WEIGHTED_ROWS, samples - start)
        positive_end, negative_begin = 0, count
        for s in range(start, start + count):
            if weights[s] < 0:
                negative_begin -= 1
            place = negative_begin if weights[s] < 0 else positive_end
            root = np.sqrt(abs(weights[s]))
            for j in range(n):
                scaled[place, j] = root * a[s, j]
            if not weights[s] < 0:
                positive_end += 1
        blas_syrk((UPPER, NO, n, positive_end, 1.0, scaled, n, beta, c, n))
        blas_syrk(
            (UPPER, NO, n, count - negative_begin, -1.0, scaled[negative_begin:], n, 1.0, c, n)
        )
        beta = 1.0
    mirror(c)
    give_back(memory)


@compiled()
def spread_triangles(packed, symmetric):
    """Expand lower triangles, packed row by row (stack, n (n + 1) / 2), to symmetric matrices
    (stack, n, n)."""
    stack, n, _ = symmetric.shape
    for s in range(stack):
        position = 0
        for i in range(n):
            for j in range(i + 1):
                symmetric[s, i, j] = symmetric[s, j, i] = packed[s, position]
                position += 1


@compiled()
def mirror(c):
    """Copy the lower triangle of c (n, n) to the upper one, tile by tile."""
    n = c.shape[0]
    for top in range(0, n, TILE):
        for left in range(0, top + 1, TILE):
            for i in range(top, min(top + TILE, n)):
                for j in range(left, min(left + TILE, i)):
                    c[j, i] = c[i, j]
