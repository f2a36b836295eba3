"""The largest entry of each row, and where it is."""

# mypy: allow-untyped-defs

import math

from numba import cuda

from .base import THREADS, device, kernel
from .blocks import block_maximum, block_sum, larger, rows_of


def row_maxima(run, x, out):
    """out[s] = max(x[s, :]); nan if there is one; x (stack, n)."""
    run.launch(largest_of_rows, *rows_of(*x.shape), x, out)


def shares_of_maximum(run, x, out):
    """out[s, i] = 1/k if x[s, i] is one of the k largest entries of x[s, :], 0 if it is not; nan
    where an entry is nan."""
    blocks, threads = rows_of(*x.shape)
    run.launch(shares_in_rows, blocks if x.size else 0, threads, x, out)


@device
def largest_of_row(x, s, shared):
    """The largest entry of x[s, :], by a row of threads; nan if there is one."""
    largest = x.dtype.type(-math.inf)
    for i in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
        largest = larger(largest, x[s, i])
    return block_maximum(largest, shared)


@kernel("real[:, ::1], real[::1]")
def largest_of_rows(x, out):
    """out[s] = the largest entry of x[s, :]."""
    stack, _ = x.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    step = cuda.gridDim.x * cuda.blockDim.y
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, stack, step):
        s = min(first + cuda.threadIdx.y, stack - 1)
        largest = largest_of_row(x, s, shared)
        if cuda.threadIdx.x == 0:
            out[s] = largest


@kernel("real[:, ::1], real[:, ::1]")
def shares_in_rows(x, out):
    """out[s, i] = 1/k for the k largest entries of x[s, :]."""
    stack, n = x.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    zero, one = x.dtype.type(0), x.dtype.type(1)
    step = cuda.gridDim.x * cuda.blockDim.y
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, stack, step):
        s = min(first + cuda.threadIdx.y, stack - 1)
        largest = largest_of_row(x, s, shared)
        total = zero
        for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            total += one if x[s, i] == largest else zero
        total = block_sum(total, shared)
        for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            out[s, i] = (one if x[s, i] == largest else zero) / total
