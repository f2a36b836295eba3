"""The largest entry of each row, and its position."""

# mypy: allow-untyped-defs

import math

from numba import cuda

from .base import THREADS, kernel
from .elementary import real_maximum
from .shares import MAXIMUM, SUM, each_row, reduce_rows, reduced


def row_maxima(run, x, out):
    """out[s] = max(x[s, :]); nan if there is one; x (stack, n)."""
    reduce_rows(run, x, out, MAXIMUM)


def shares_of_maximum(run, x, out):
    """out[s, i] = 1/k if x[s, i] is one of the k largest entries of x[s, :], 0 if it is not; nan
    where an entry is nan."""
    each_row(run, shares_in_rows, *x.shape, x, out)


@kernel("real[:, ::1], real[:, ::1], int64")
def shares_in_rows(x, out, lanes):
    """out[s, i] = 1/k for the k largest entries of x[s, :]."""
    stack, n = x.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    zero, one = x.dtype.type(0), x.dtype.type(1)
    lane, groups = cuda.threadIdx.x & (lanes - 1), cuda.blockDim.x // lanes
    for start in range(cuda.blockIdx.x * groups, stack, cuda.gridDim.x * groups):
        s = min(start + cuda.threadIdx.x // lanes, stack - 1)
        largest = x.dtype.type(-math.inf)
        for i in range(lane, n, lanes):
            largest = real_maximum(largest, x[s, i])
        largest = reduced(largest, lanes, shared, MAXIMUM)
        total = zero
        for i in range(lane, n, lanes):
            total += one if x[s, i] == largest else zero
        total = reduced(total, lanes, shared, SUM)
        for i in range(lane, n, lanes):
            out[s, i] = (one if x[s, i] == largest else zero) / total
