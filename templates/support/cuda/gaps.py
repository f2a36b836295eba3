"""Reciprocals of the differences and sums of all pairs of entries of a vector."""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import THREADS, device, kernel
from .shares import MAXIMUM, each_row, reduced


def rounding_levels(run, x, out):
    """out (stack,) = the size below which a difference or sum of two entries of a row of `x`
    (stack, n) may consist of rounding errors."""
    each_row(run, levels_of_rows, *x.shape, x, out, level_ratio(x))


def level_ratio(x):
    """The rounding level of a row divided by its largest entry."""
    return 10 * x.shape[1] * float(np.finfo(x.dtype).eps)


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
    each_row(run, reciprocals_of_pairs, stack, n, x, out, sign, level_ratio(x))


@device
def row_level(row, ratio, lane, lanes, shared):
    """The rounding level of a row, by a group of threads."""
    largest = row.dtype.type(0)
    for i in range(lane, len(row), lanes):
        if abs(row[i]) > largest:
            largest = abs(row[i])
    return ratio * reduced(largest, lanes, shared, MAXIMUM)


@kernel("real[:, ::1], real[::1], real, int64")
def levels_of_rows(x, out, ratio, lanes):
    """out[s] = the rounding level of x[s], a group of threads for each row."""
    stack = x.shape[0]
    shared = cuda.shared.array(THREADS, x.dtype)
    lane, groups = cuda.threadIdx.x & (lanes - 1), cuda.blockDim.x // lanes
    for start in range(cuda.blockIdx.x * groups, stack, cuda.gridDim.x * groups):
        s = min(start + cuda.threadIdx.x // lanes, stack - 1)
        level = row_level(x[s], ratio, lane, lanes, shared)
        if lane == 0:
            out[s] = level


@kernel("real[:, ::1], real[:, :, ::1], real, real, int64")
def reciprocals_of_pairs(x, out, sign, ratio, lanes):
    """out[s, i, j] = 1 / (x[s, j] + sign x[s, i]), a group of threads for each row."""
    stack, n = x.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    one, missing = x.dtype.type(1), x.dtype.type(math.nan)
    lane, groups = cuda.threadIdx.x & (lanes - 1), cuda.blockDim.x // lanes
    for start in range(cuda.blockIdx.x * groups, stack, cuda.gridDim.x * groups):
        s = min(start + cuda.threadIdx.x // lanes, stack - 1)
        level = row_level(x[s], ratio, lane, lanes, shared)
        for i in range(n):
            for j in range(lane, n, lanes):
                total = x[s, j] + sign * x[s, i]
                out[s, i, j] = one / total if abs(total) > level else missing
                if i == j and sign < 0:
                    out[s, i, j] = 0
