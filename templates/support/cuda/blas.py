"""Products of matrices."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import kernel
from .blocks import blocks_for, entries
from .libraries import _cublas, gemm_by_library, matrix_shape

FEW = 4096
"""Products of no more multiplications are computed entry by entry."""
GEMM_ROWS = 64
"""The rows and columns of a tile of a product: 4 by 4 for each of 16 by 16 threads."""
GEMM_STEP = GEMM_ROWS + 1
GEMM_INNER = 16


def gemm(run, alpha, left, left_transposed, right, right_transposed, beta, target):
    """target = alpha * op(left) @ op(right) + beta * target.

    Each of them has 2 axes, or 3 for a stack; one factor is for all of a stack if it has 2 axes.
    What is in `target` is not read if beta is 0.
    """
    rows, columns = matrix_shape(target)
    inner = matrix_shape(left)[0 if left_transposed else 1]
    stack = target.shape[0] if target.ndim == 3 else 1
    few = rows * columns * inner <= FEW
    if target.size == 0:
        return
    if not few and _cublas is not None:
        gemm_by_library(run, alpha, left, left_transposed, right, right_transposed, beta, target)
        return
    flags = int(bool(left_transposed)), int(bool(right_transposed))
    operands = as_stack(left), as_stack(right), as_stack(target), *flags, float(alpha), float(beta)
    if few:
        run.launch(gemm_entries, *entries(stack * rows * columns), *operands)
    else:
        tiles = ((rows - 1) // GEMM_ROWS + 1) * ((columns - 1) // GEMM_ROWS + 1)
        run.launch(gemm_tiles, blocks_for(stack * tiles, 1), (16, 16), *operands)


def symmetric_gemm(run, alpha, left, left_transposed, right, right_transposed, beta, target):
    """`gemm` where the result is symmetric."""
    gemm(run, alpha, left, left_transposed, right, right_transposed, beta, target)


def as_stack(array):
    """A matrix as a stack of one."""
    return array if array.ndim == 3 else array.reshape(1, *array.shape)


@kernel("real[:, :, ::1], real[:, :, ::1], real[:, :, ::1], int64, int64, real, real")
def gemm_entries(left, right, target, left_transposed, right_transposed, alpha, beta):
    """`gemm` of stacks, every entry by one thread."""
    stack, rows, columns = target.shape
    inner = left.shape[1] if left_transposed else left.shape[2]
    zero = target.dtype.type(0)
    for entry in range(cuda.grid(1), stack * rows * columns, cuda.gridsize(1)):
        j = entry % columns
        i = entry // columns % rows
        s = entry // columns // rows
        a = s if left.shape[0] > 1 else 0
        b = s if right.shape[0] > 1 else 0
        total = zero
        for k in range(inner):
            x = left[a, k, i] if left_transposed else left[a, i, k]
            total += x * (right[b, j, k] if right_transposed else right[b, k, j])
        if beta == zero:
            target[s, i, j] = alpha * total
        else:
            target[s, i, j] = alpha * total + beta * target[s, i, j]


@kernel("real[:, :, ::1], real[:, :, ::1], real[:, :, ::1], int64, int64, real, real")
def gemm_tiles(left, right, target, left_transposed, right_transposed, alpha, beta):
    """`gemm` of stacks, every tile by one block of 16 by 16 threads, 16 entries a thread."""
    stack, rows, columns = target.shape
    inner = left.shape[1] if left_transposed else left.shape[2]
    x = cuda.shared.array((GEMM_INNER, GEMM_STEP), target.dtype)
    y = cuda.shared.array((GEMM_INNER, GEMM_STEP), target.dtype)
    total = cuda.local.array((4, 4), target.dtype)
    zero = target.dtype.type(0)
    across, down = cuda.threadIdx.x, cuda.threadIdx.y
    place = down * 16 + across
    wide = (columns - 1) // GEMM_ROWS + 1
    high = (rows - 1) // GEMM_ROWS + 1
    for job in range(cuda.blockIdx.x, stack * high * wide, cuda.gridDim.x):
        s = job // (high * wide)
        top = job // wide % high * GEMM_ROWS
        begin = job % wide * GEMM_ROWS
        a = s if left.shape[0] > 1 else 0
        b = s if right.shape[0] > 1 else 0
        for i in range(4):
            for j in range(4):
                total[i, j] = zero
        for start in range(0, inner, GEMM_INNER):
            for part in range(4):
                # neighbouring threads load neighbouring entries
                if left_transposed:
                    i, k = place % 64, place // 64 + 4 * part
                else:
                    i, k = place // 16 + 16 * part, place % 16
                inside = top + i < rows and start + k < inner
                if left_transposed:
                    x[k, i] = left[a, start + k, top + i] if inside else zero
                else:
                    x[k, i] = left[a, top + i, start + k] if inside else zero
                if right_transposed:
                    j, k = place // 16 + 16 * part, place % 16
                else:
                    j, k = place % 64, place // 64 + 4 * part
                inside = begin + j < columns and start + k < inner
                if right_transposed:
                    y[k, j] = right[b, begin + j, start + k] if inside else zero
                else:
                    y[k, j] = right[b, start + k, begin + j] if inside else zero
            cuda.syncthreads()
            for k in range(GEMM_INNER):
                for i in range(4):
                    for j in range(4):
                        total[i, j] += x[k, down + 16 * i] * y[k, across + 16 * j]
            cuda.syncthreads()
        for i in range(4):
            for j in range(4):
                row, column = top + down + 16 * i, begin + across + 16 * j
                if row < rows and column < columns:
                    if beta == zero:
                        target[s, row, column] = alpha * total[i, j]
                    else:
                        kept = beta * target[s, row, column]
                        target[s, row, column] = alpha * total[i, j] + kept
