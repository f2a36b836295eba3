"""Stable softmax, its logarithm, and logsumexp of rows.

A long row is split into parts. A first kernel computes the maximum and the sum of exponentials of
each part (as in online softmax, Milakov and Gimelshein 2018)."""

# mypy: allow-untyped-defs

import math

from numba import cuda

from .base import THREADS, device, kernel, power_of_two
from .elementary import real_maximum
from .shares import MAXIMUM, SUM, reduced

PART_ENTRIES = 8 * THREADS
"""The largest number of entries of a part, unless there are more than MAX_PARTS parts."""
MAX_PARTS = 256


def softmax(run, x, out, logarithm=False):
    """out[s, i] = exp(x[s, i]) / sum(exp(x[s, :])), without overflow; x (stack, n)."""
    parts, length, lanes = parts_of_rows(run, x)
    jobs = parts.shape[0] * parts.shape[1] if x.size else 0
    run.launch_groups(softmax_parts, jobs, lanes, x, parts, out, length, int(logarithm))


def log_softmax(run, x, out):
    """out[s, i] = log(exp(x[s, i]) / sum(exp(x[s, :]))), without overflow; x (stack, n)."""
    softmax(run, x, out, logarithm=True)


def logsumexp(run, x, out):
    """out[s] = log(sum(exp(x[s, :]))), without overflow; x (stack, n)."""
    parts, _, _ = parts_of_rows(run, x)
    lanes = power_of_two(parts.shape[1], THREADS)
    run.launch_groups(logsumexp_parts, len(out), lanes, parts, out)


def parts_of_rows(run, x):
    """Compute the maximum m of each part and the sum of exp(x - m) over it: an array (stack, parts,
    2). Returns it with the length of a part and the number of threads for one."""
    stack, n = x.shape
    count = max(min((n + PART_ENTRIES - 1) // PART_ENTRIES, MAX_PARTS), 1)
    length = (n + count - 1) // count
    lanes = power_of_two((length + 3) // 4, THREADS)
    parts = run.empty((stack, count, 2))
    run.launch_groups(row_parts, stack * count, lanes, x, parts, length)
    return parts, length, lanes


@device
def log_of_sum(largest, total):
    """largest + log(total), or an infinite `largest` itself."""
    return largest + math.log(total) if abs(largest) < math.inf else largest


@kernel("real[:, ::1], real[:, :, ::1], int64, int64")
def row_parts(x, parts, length, lanes):
    """parts[s, p] = the maximum m of part p of x[s], and the sum of exp(x - m) over it."""
    stack, count, _ = parts.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    lane, groups = cuda.threadIdx.x & (lanes - 1), cuda.blockDim.x // lanes
    for start in range(cuda.blockIdx.x * groups, stack * count, cuda.gridDim.x * groups):
        job = min(start + cuda.threadIdx.x // lanes, stack * count - 1)
        s, p = job // count, job % count
        begin, end = p * length + lane, min(p * length + length, x.shape[1])
        largest = x.dtype.type(-math.inf)
        for i in range(begin, end, lanes):
            largest = real_maximum(largest, x[s, i])
        largest = reduced(largest, lanes, shared, MAXIMUM)
        total = x.dtype.type(0)
        for i in range(begin, end, lanes):
            total += math.exp(x[s, i] - largest)
        total = reduced(total, lanes, shared, SUM)
        if lane == 0:
            parts[s, p, 0] = largest
            parts[s, p, 1] = total


@device
def join_parts(parts, s, lane, lanes, shared):
    """The maximum m of row s and the sum of exp(x - m) over it, by a group of threads."""
    largest = parts.dtype.type(-math.inf)
    for p in range(lane, parts.shape[1], lanes):
        largest = real_maximum(largest, parts[s, p, 0])
    largest = reduced(largest, lanes, shared, MAXIMUM)
    total = parts.dtype.type(0)
    for p in range(lane, parts.shape[1], lanes):
        # a part of -inf alone, whose sum is nan, adds nothing to a row with larger entries
        if parts[s, p, 0] > -math.inf or parts[s, p, 0] != parts[s, p, 0]:
            total += parts[s, p, 1] * math.exp(parts[s, p, 0] - largest)
    return largest, reduced(total, lanes, shared, SUM)


@kernel("real[:, ::1], real[:, :, ::1], real[:, ::1], int64, int64, int64")
def softmax_parts(x, parts, out, length, logarithm, lanes):
    """Softmax of rows, or its logarithm, a group of threads for each part."""
    stack, count, _ = parts.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    lane, groups = cuda.threadIdx.x & (lanes - 1), cuda.blockDim.x // lanes
    for start in range(cuda.blockIdx.x * groups, stack * count, cuda.gridDim.x * groups):
        job = min(start + cuda.threadIdx.x // lanes, stack * count - 1)
        s, p = job // count, job % count
        largest, total = join_parts(parts, s, lane, lanes, shared)
        begin, end = p * length + lane, min(p * length + length, x.shape[1])
        if logarithm:
            # the total is 0 in rows of -inf alone, whose differences are nan
            log_total = math.log(total) if total > 0 else total
            for i in range(begin, end, lanes):
                out[s, i] = (x[s, i] - largest) - log_total
        else:
            for i in range(begin, end, lanes):
                out[s, i] = math.exp(x[s, i] - largest) / total


@kernel("real[:, :, ::1], real[::1], int64")
def logsumexp_parts(parts, out, lanes):
    """Logsumexp of rows, a group of threads for each."""
    stack = len(out)
    shared = cuda.shared.array(THREADS, out.dtype)
    lane, groups = cuda.threadIdx.x & (lanes - 1), cuda.blockDim.x // lanes
    for start in range(cuda.blockIdx.x * groups, stack, cuda.gridDim.x * groups):
        s = min(start + cuda.threadIdx.x // lanes, stack - 1)
        largest, total = join_parts(parts, s, lane, lanes, shared)
        if lane == 0:
            out[s] = log_of_sum(largest, total)
