"""Determinants of factored matrices, from their diagonals."""

# mypy: allow-untyped-defs

import math

from numba import cuda

from .base import THREADS, device, kernel, power_of_two
from .blocks import SMALL, block_product, block_sum, blocks_for

DET = 0
LOGABSDET = 1
LOGDET = 2


def determinants(run, a, out, kind, squared):
    """out (stack,) = the product of the diagonal of each matrix of `a` (stack, n, n), or what
    `kind` says of it; squared: of the squares of its entries."""
    run.launch(diagonals, *diagonal_layout(a), a, out, kind, int(squared))


def diagonal_layout(a):
    """Blocks and threads: a thread for each diagonal, or several for a long one."""
    stack, n, _ = a.shape
    width = 1 if n <= SMALL else power_of_two(n, THREADS)
    several = power_of_two(stack, THREADS // width)
    return blocks_for(stack, several), (width, several)


@device
def logarithm(x):
    """log(x) of what is not negative: -inf for zero, for which Python's raises."""
    return math.log(x) if x > 0 else -(x**0) / x


@device
def finish_determinant(out, s, factor, size, kind, shared):
    """out[s] from each thread's product, or from its sum of logarithms and the sign of it."""
    factor = block_product(factor, shared)
    if kind != DET:
        size = block_sum(size, shared)
    if cuda.threadIdx.x == 0:
        if kind == DET:
            out[s] = factor
        elif kind == LOGDET and factor < 0 and size > -math.inf:
            out[s] = math.nan
        else:
            out[s] = size


@kernel("real[:, :, ::1], real[::1], int64, int64")
def diagonals(a, out, kind, squared):
    """Determinants by diagonals, a row of threads for each of them."""
    stack, n, _ = a.shape
    shared = cuda.shared.array(THREADS, out.dtype)
    step = cuda.gridDim.x * cuda.blockDim.y
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, stack, step):
        s = min(first + cuda.threadIdx.y, stack - 1)
        factor = out.dtype.type(1)
        size = out.dtype.type(0)
        for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            entry = a[s, i, i]
            if kind == DET:
                factor *= entry * entry if squared else entry
            else:
                size += logarithm(abs(entry))
                if entry < 0:
                    factor = -factor
        finish_determinant(out, s, factor, size + size if squared else size, kind, shared)


@kernel("real[:, :, ::1], int32[:, ::1], real[::1], int64")
def pivoted_diagonals(a, pivots, out, kind):
    """Determinants by diagonals and exchanges, a row of threads for each of them."""
    stack, n, _ = a.shape
    shared = cuda.shared.array(THREADS, out.dtype)
    step = cuda.gridDim.x * cuda.blockDim.y
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, stack, step):
        s = min(first + cuda.threadIdx.y, stack - 1)
        factor = out.dtype.type(1)
        size = out.dtype.type(0)
        for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            entry = a[s, i, i] if pivots[s, i] == i + 1 else -a[s, i, i]
            if kind == DET:
                factor *= entry
            else:
                size += logarithm(abs(entry))
                if entry < 0:
                    factor = -factor
        finish_determinant(out, s, factor, size, kind, shared)
