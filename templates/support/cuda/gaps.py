"""Reciprocals of differences and sums of the entries of vectors, two by two."""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import THREADS, device, kernel
from .blocks import block_maximum, rows_of


def reciprocal_gaps(run, x, out):
    """out (stack, n, n) = 1 / (x[j] - x[i]), zero on the diagonal; nan where two entries of a row
    of `x` (stack, n) are equal up to rounding."""
    reciprocals(run, x, out, -1.0)


def reciprocal_sums(run, x, out):
    """out (stack, n, n) = 1 / (x[i] + x[j]); nan where that is zero up to rounding."""
    reciprocals(run, x, out, 1.0)


def reciprocals(run, x, out, sign):
    """out (stack, n, n) = 1 / (x[j] + sign x[i])."""
    stack, n = x.shape
    blocks, threads = rows_of(stack, n, 1)
    small = 10 * n * float(np.finfo(x.dtype).eps)
    numbers = x.dtype.type(sign), x.dtype.type(small)
    run.launch(reciprocals_of_pairs, blocks if n else 0, threads, x, out, *numbers)


@device
def row_level(x, s, small, shared):
    """The size below which a difference or sum of entries of x[s, :] may be all rounding."""
    largest = x.dtype.type(0)
    for i in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
        if abs(x[s, i]) > largest:
            largest = abs(x[s, i])
    return small * block_maximum(largest, shared)


@kernel("real[:, ::1], real[:, :, ::1], real, real")
def reciprocals_of_pairs(x, out, sign, small):
    """out[s, i, j] = 1 / (x[s, j] + sign x[s, i]), by a row of threads."""
    stack, n = x.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    one, missing = x.dtype.type(1), x.dtype.type(math.nan)
    step = cuda.gridDim.x * cuda.blockDim.y
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, stack, step):
        s = min(first + cuda.threadIdx.y, stack - 1)
        least = row_level(x, s, small, shared)
        for i in range(n):
            for j in range(cuda.threadIdx.x, n, cuda.blockDim.x):
                total = x[s, j] + sign * x[s, i]
                out[s, i, j] = one / total if abs(total) > least else missing
                if i == j and sign < 0:
                    out[s, i, j] = 0
