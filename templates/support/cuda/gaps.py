"""Reciprocals of differences and sums of the entries of vectors, two by two."""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import THREADS, device, kernel
from .shares import MAXIMUM, each_row, reduced


def rounding_levels(run, x, out):
    """out (stack,) = the size below which a difference or sum of entries of a row of `x` (stack, n)
    may be all rounding."""
    each_row(run, levels_of_rows, *x.shape, x, out, level_ratio(x))


def level_ratio(x):
    """The level of a row over its largest entry."""
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
def row_level(row, small, lane, lanes, shared):
    """The size below which a difference or sum of entries of a row may be all rounding."""
    largest = row.dtype.type(0)
    for i in range(lane, len(row), lanes):
        if abs(row[i]) > largest:
            largest = abs(row[i])
    return small * reduced(largest, lanes, shared, MAXIMUM)


@kernel("real[:, ::1], real[::1], real, int64")
def levels_of_rows(x, out, small, lanes):
    """out[s] = the level of x[s], each row by a group of threads."""
    stack = x.shape[0]
    shared = cuda.shared.array(THREADS, x.dtype)
    lane, groups = cuda.threadIdx.x & (lanes - 1), cuda.blockDim.x // lanes
    for first in range(cuda.blockIdx.x * groups, stack, cuda.gridDim.x * groups):
        s = min(first + cuda.threadIdx.x // lanes, stack - 1)
        level = row_level(x[s], small, lane, lanes, shared)
        if lane == 0:
            out[s] = level


@kernel("real[:, ::1], real[:, :, ::1], real, real, int64")
def reciprocals_of_pairs(x, out, sign, small, lanes):
    """out[s, i, j] = 1 / (x[s, j] + sign x[s, i]), each row by a group of threads."""
    stack, n = x.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    one, missing = x.dtype.type(1), x.dtype.type(math.nan)
    lane, groups = cuda.threadIdx.x & (lanes - 1), cuda.blockDim.x // lanes
    for first in range(cuda.blockIdx.x * groups, stack, cuda.gridDim.x * groups):
        s = min(first + cuda.threadIdx.x // lanes, stack - 1)
        least = row_level(x[s], small, lane, lanes, shared)
        for i in range(n):
            for j in range(lane, n, lanes):
                total = x[s, j] + sign * x[s, i]
                out[s, i, j] = one / total if abs(total) > least else missing
                if i == j and sign < 0:
                    out[s, i, j] = 0
