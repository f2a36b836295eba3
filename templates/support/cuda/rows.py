"""Stable softmax, its logarithm and logsumexp of rows.

A row is one part, a long one is cut in parts: the maximum of each part and the sum of its powers
are found first (as in online softmax, Milakov and Gimelshein 2018).
"""

# mypy: allow-untyped-defs

import math

from numba import cuda

from .base import THREADS, device, kernel, power_of_two
from .elementary import real_maximum
from .shares import MAXIMUM, SUM, reduced

PART = 8 * THREADS
"""The most entries of a part, unless there are too many parts."""
MOST_PARTS = 256


def softmax(run, x, out):
    """out[s, i] = exp(x[s, i]) / sum(exp(x[s, :])), without overflow; x (stack, n)."""
    parts, length, lanes = parts_of_rows(run, x)
    jobs = parts.shape[0] * parts.shape[1] if x.size else 0
    run.by_groups(softmax_parts, jobs, lanes, x, parts, out, length)


def log_softmax(run, x, out):
    """out[s, i] = log(exp(x[s, i]) / sum(exp(x[s, :]))), without overflow; x (stack, n)."""
    parts, length, lanes = parts_of_rows(run, x)
    jobs = parts.shape[0] * parts.shape[1] if x.size else 0
    run.by_groups(log_softmax_parts, jobs, lanes, x, parts, out, length)


def logsumexp(run, x, out):
    """out[s] = log(sum(exp(x[s, :]))), without overflow; x (stack, n)."""
    parts, _, _ = parts_of_rows(run, x)
    lanes = power_of_two(parts.shape[1], THREADS)
    run.by_groups(logsumexp_parts, len(out), lanes, parts, out)


def parts_of_rows(run, x):
    """For each part of each row its maximum and the sum of the powers above that, (stack, parts,
    2), the length of a part, and how many threads share one."""
    stack, n = x.shape
    count = max(min((n + PART - 1) // PART, MOST_PARTS), 1)
    length = (n + count - 1) // count
    lanes = power_of_two((length + 3) // 4, THREADS)
    parts = run.empty((stack, count, 2))
    run.by_groups(row_parts, stack * count, lanes, x, parts, length)
    return parts, length, lanes


@device
def power_above(x, largest):
    """exp(x - largest), 0 where x is -inf; nan if one is nan, or both are inf."""
    return math.exp(x - largest)


@device
def log_of_sum(largest, total):
    """largest + log(total), for total >= 1 if largest is finite."""
    return largest + math.log(total) if abs(largest) < math.inf else largest


@kernel("real[:, ::1], real[:, :, ::1], int64, int64")
def row_parts(x, parts, length, lanes):
    """parts[s, p] = the maximum of part p of x[s], and the sum of its powers above that."""
    stack, count, _ = parts.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    lane, groups = cuda.threadIdx.x & (lanes - 1), cuda.blockDim.x // lanes
    for first in range(cuda.blockIdx.x * groups, stack * count, cuda.gridDim.x * groups):
        job = min(first + cuda.threadIdx.x // lanes, stack * count - 1)
        s, p = job // count, job % count
        begin, end = p * length + lane, min(p * length + length, x.shape[1])
        largest = x.dtype.type(-math.inf)
        for i in range(begin, end, lanes):
            largest = real_maximum(largest, x[s, i])
        largest = reduced(largest, lanes, shared, MAXIMUM)
        total = x.dtype.type(0)
        for i in range(begin, end, lanes):
            total += power_above(x[s, i], largest)
        total = reduced(total, lanes, shared, SUM)
        if lane == 0:
            parts[s, p, 0] = largest
            parts[s, p, 1] = total


@device
def join_parts(parts, s, lane, lanes, shared):
    """The largest entry of row s, and the sum of the powers above it, by a group of threads."""
    largest = parts.dtype.type(-math.inf)
    for p in range(lane, parts.shape[1], lanes):
        largest = real_maximum(largest, parts[s, p, 0])
    largest = reduced(largest, lanes, shared, MAXIMUM)
    total = parts.dtype.type(0)
    for p in range(lane, parts.shape[1], lanes):
        if parts[s, p, 0] > -math.inf or parts[s, p, 0] != parts[s, p, 0]:
            total += parts[s, p, 1] * power_above(parts[s, p, 0], largest)
    return largest, reduced(total, lanes, shared, SUM)


@kernel("real[:, ::1], real[:, :, ::1], real[:, ::1], int64, int64")
def softmax_parts(x, parts, out, length, lanes):
    """Softmax of rows, each part by a group of threads."""
    stack, count, _ = parts.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    lane, groups = cuda.threadIdx.x & (lanes - 1), cuda.blockDim.x // lanes
    for first in range(cuda.blockIdx.x * groups, stack * count, cuda.gridDim.x * groups):
        job = min(first + cuda.threadIdx.x // lanes, stack * count - 1)
        s, p = job // count, job % count
        largest, total = join_parts(parts, s, lane, lanes, shared)
        for i in range(p * length + lane, min(p * length + length, x.shape[1]), lanes):
            out[s, i] = power_above(x[s, i], largest) / total


@kernel("real[:, ::1], real[:, :, ::1], real[:, ::1], int64, int64")
def log_softmax_parts(x, parts, out, length, lanes):
    """Logarithms of softmax of rows, each part by a group of threads."""
    stack, count, _ = parts.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    lane, groups = cuda.threadIdx.x & (lanes - 1), cuda.blockDim.x // lanes
    for first in range(cuda.blockIdx.x * groups, stack * count, cuda.gridDim.x * groups):
        job = min(first + cuda.threadIdx.x // lanes, stack * count - 1)
        s, p = job // count, job % count
        largest, total = join_parts(parts, s, lane, lanes, shared)
        for i in range(p * length + lane, min(p * length + length, x.shape[1]), lanes):
            out[s, i] = (x[s, i] - largest) - math.log(total)


@kernel("real[:, :, ::1], real[::1], int64")
def logsumexp_parts(parts, out, lanes):
    """Logsumexp of rows, each by a group of threads."""
    stack = len(out)
    shared = cuda.shared.array(THREADS, out.dtype)
    lane, groups = cuda.threadIdx.x & (lanes - 1), cuda.blockDim.x // lanes
    for first in range(cuda.blockIdx.x * groups, stack, cuda.gridDim.x * groups):
        s = min(first + cuda.threadIdx.x // lanes, stack - 1)
        largest, total = join_parts(parts, s, lane, lanes, shared)
        if lane == 0:
            out[s] = log_of_sum(largest, total)
