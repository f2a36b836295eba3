"""Stable softmax and logsumexp of rows.

A row that a group of threads can hold is read once. A long one is cut in parts: the maximum of each
part and the sum of its powers are found first (as in online softmax, Milakov and Gimelshein 2018).
"""

# mypy: allow-untyped-defs

import math

from numba import cuda

from .base import THREADS, device, kernel, power_of_two
from .blocks import blocks_for
from .elementary import real_maximum
from .shares import MAXIMUM, SUM, by_groups, reduced

HELD = 8
"""Entries of a row that a thread holds."""
PART = THREADS * HELD
MOST_PARTS = 256


def softmax(run, x, out):
    """out[s, i] = exp(x[s, i]) / sum(exp(x[s, :])), without overflow; x (stack, n)."""
    stack, n = x.shape
    if n <= PART:
        by_groups(run, softmax_rows, stack if n else 0, lanes_for(n), x, out)
    else:
        parts, length = parts_of_rows(run, x)
        count = blocks_for(stack * parts.shape[1], 1)
        run.launch(softmax_parts, count, THREADS, x, parts, out, length)


def logsumexp(run, x, out):
    """out[s] = log(sum(exp(x[s, :]))), without overflow; x (stack, n)."""
    stack, n = x.shape
    if n <= PART:
        by_groups(run, logsumexp_rows, stack, lanes_for(n), x, out)
    else:
        parts, _ = parts_of_rows(run, x)
        run.launch(logsumexp_parts, blocks_for(stack, 1), THREADS, parts, out)


def lanes_for(n):
    """The threads that hold a row of n entries."""
    return power_of_two((n + HELD - 1) // HELD, THREADS)


def parts_of_rows(run, x):
    """For each part of each row its maximum and the sum of the powers above that, (stack, parts,
    2), and the length of a part."""
    stack, n = x.shape
    count = min((n + PART - 1) // PART, MOST_PARTS)
    length = (n + count - 1) // count
    parts = run.empty((stack, count, 2))
    run.launch(row_parts, blocks_for(stack * count, 1), THREADS, x, parts, length)
    return parts, length


@device
def power_above(x, largest):
    """exp(x - largest), 0 where x is -inf; nan if one is nan, or both are inf."""
    return math.exp(x - largest)


@device
def log_of_sum(largest, total):
    """largest + log(total), for total >= 1 if largest is finite."""
    return largest + math.log(total) if abs(largest) < math.inf else largest


@device
def hold(row, lane, lanes, held):
    """Copy a thread's entries of a row to `held`, with -inf for those beyond its end; the largest
    of them."""
    largest = row.dtype.type(-math.inf)
    for part in range(HELD):
        i = part * lanes + lane
        held[part] = row[i] if i < len(row) else row.dtype.type(-math.inf)
        largest = real_maximum(largest, held[part])
    return largest


@kernel("real[:, ::1], real[:, ::1], int64")
def softmax_rows(x, out, lanes):
    """Softmax of rows, each held by a group of threads."""
    stack, n = x.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    held = cuda.local.array(HELD, x.dtype)
    lane, groups = cuda.threadIdx.x % lanes, cuda.blockDim.x // lanes
    for first in range(cuda.blockIdx.x * groups, stack, cuda.gridDim.x * groups):
        s = min(first + cuda.threadIdx.x // lanes, stack - 1)
        largest = reduced(hold(x[s], lane, lanes, held), lanes, shared, MAXIMUM)
        total = x.dtype.type(0)
        for part in range(HELD):
            held[part] = power_above(held[part], largest)
            total += held[part]
        total = reduced(total, lanes, shared, SUM)
        for part in range(HELD):
            i = part * lanes + lane
            if i < n:
                out[s, i] = held[part] / total


@kernel("real[:, ::1], real[::1], int64")
def logsumexp_rows(x, out, lanes):
    """Logsumexp of rows, each held by a group of threads."""
    stack, _ = x.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    held = cuda.local.array(HELD, x.dtype)
    lane, groups = cuda.threadIdx.x % lanes, cuda.blockDim.x // lanes
    for first in range(cuda.blockIdx.x * groups, stack, cuda.gridDim.x * groups):
        s = min(first + cuda.threadIdx.x // lanes, stack - 1)
        largest = reduced(hold(x[s], lane, lanes, held), lanes, shared, MAXIMUM)
        total = x.dtype.type(0)
        for part in range(HELD):
            total += power_above(held[part], largest)
        total = reduced(total, lanes, shared, SUM)
        if lane == 0:
            out[s] = log_of_sum(largest, total)


@kernel("real[:, ::1], real[:, :, ::1], int64")
def row_parts(x, parts, length):
    """parts[s, p] = the maximum of part p of x[s], and the sum of its powers above that."""
    stack, count, _ = parts.shape
    n = x.shape[1]
    shared = cuda.shared.array(THREADS, x.dtype)
    for job in range(cuda.blockIdx.x, stack * count, cuda.gridDim.x):
        s, p = job // count, job % count
        begin, end = p * length, min(p * length + length, n)
        largest = x.dtype.type(-math.inf)
        for i in range(begin + cuda.threadIdx.x, end, cuda.blockDim.x):
            largest = real_maximum(largest, x[s, i])
        largest = reduced(largest, cuda.blockDim.x, shared, MAXIMUM)
        total = x.dtype.type(0)
        for i in range(begin + cuda.threadIdx.x, end, cuda.blockDim.x):
            total += power_above(x[s, i], largest)
        total = reduced(total, cuda.blockDim.x, shared, SUM)
        if cuda.threadIdx.x == 0:
            parts[s, p, 0] = largest
            parts[s, p, 1] = total


@device
def join_parts(parts, s, shared):
    """The largest entry of row s, and the sum of the powers above it, by the threads of a block."""
    largest = parts.dtype.type(-math.inf)
    for p in range(cuda.threadIdx.x, parts.shape[1], cuda.blockDim.x):
        largest = real_maximum(largest, parts[s, p, 0])
    largest = reduced(largest, cuda.blockDim.x, shared, MAXIMUM)
    total = parts.dtype.type(0)
    for p in range(cuda.threadIdx.x, parts.shape[1], cuda.blockDim.x):
        if parts[s, p, 0] > -math.inf or parts[s, p, 0] != parts[s, p, 0]:
            total += parts[s, p, 1] * power_above(parts[s, p, 0], largest)
    return largest, reduced(total, cuda.blockDim.x, shared, SUM)


@kernel("real[:, ::1], real[:, :, ::1], real[:, ::1], int64")
def softmax_parts(x, parts, out, length):
    """Softmax of long rows, each part by a block."""
    stack, count, _ = parts.shape
    n = x.shape[1]
    shared = cuda.shared.array(THREADS, x.dtype)
    for job in range(cuda.blockIdx.x, stack * count, cuda.gridDim.x):
        s, p = job // count, job % count
        largest, total = join_parts(parts, s, shared)
        end = min(p * length + length, n)
        for i in range(p * length + cuda.threadIdx.x, end, cuda.blockDim.x):
            out[s, i] = power_above(x[s, i], largest) / total


@kernel("real[:, :, ::1], real[::1]")
def logsumexp_parts(parts, out):
    """Logsumexp of long rows, each by a block."""
    shared = cuda.shared.array(THREADS, out.dtype)
    for s in range(cuda.blockIdx.x, parts.shape[0], cuda.gridDim.x):
        largest, total = join_parts(parts, s, shared)
        if cuda.threadIdx.x == 0:
            out[s] = log_of_sum(largest, total)
