"""Numbers of threads, and reductions that groups of threads compute together."""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import THREADS, device, kernel, power_of_two, require_number
from .elementary import real_maximum

BUSY_THREADS = 1 << 17
"""Number of threads that keeps any device busy. Numbers of threads depend on sizes alone, so that
results do not depend on the device."""


@device
def quotient(number, divisor):
    """number // divisor for numbers from 0 to 2**32 - 1. A division in 64 bits, or of numbers whose
    sign the compiler does not know, takes several times as long."""
    return np.int64(np.uint32(number) // np.uint32(divisor))


@device
def remainder(number, quotient, divisor):
    """number - quotient * divisor, as an index."""
    return np.int64(np.uint32(number - quotient * divisor))


@device
def natural(number):
    """An index from 0 to 2**32 - 1 that the compiler knows not to be negative: others are checked
    at every use for counting from the end."""
    return np.int64(np.uint32(number))


@device
def turns(start, stop, step):
    """The length of range(start, stop, step), by a 32-bit division as in `quotient`."""
    if start >= stop:
        return np.int64(0)
    return np.int64(np.uint32(stop - 1 - start) // np.uint32(step)) + 1


SUM = 0
PRODUCT = 1
MAXIMUM = 2


@device
def reduced(value, lanes, shared, operation):
    """The SUM, PRODUCT or MAXIMUM (nan if a value is nan) of `value` over each group of `lanes`
    threads, a power of two, for all of them. All threads of a block must call it; shared: an array
    in shared memory with an entry for each thread."""
    thread = cuda.threadIdx.x
    lane = thread & (lanes - 1)
    shared[thread] = value
    cuda.syncthreads()
    step = lanes >> 1
    while step > 0:
        if lane < step:
            neighbour = shared[thread + step]
            if operation == SUM:
                shared[thread] += neighbour
            elif operation == PRODUCT:
                shared[thread] *= neighbour
            elif neighbour > shared[thread] or neighbour != neighbour:
                shared[thread] = neighbour
        cuda.syncthreads()
        step >>= 1
    result = shared[thread - lane]
    cuda.syncthreads()
    return result


@kernel("real[::1]")
def clear_entries(x):
    """x = 0."""
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        x[i] = 0


def clear(run, array):
    """Set the entries of an array to zero."""
    run.launch(clear_entries, array.size, array.reshape(array.size))


def shares(points, terms, along):
    """The number of threads of a block (a power of two), and of blocks, that share the terms of
    each of `points` sums. along: whether neighbours in memory are terms of one sum."""
    lanes = 1
    while (
        lanes < THREADS
        and 4 * lanes <= terms
        and points * lanes < BUSY_THREADS * (4 if along and lanes < 32 else 1)
        and (along or points * lanes < BUSY_THREADS // 64)
    ):
        lanes *= 2
    blocks = min(BUSY_THREADS // (points * lanes), terms // (16 * lanes), 1024) if points else 1
    return lanes, max(blocks, 1)


def sums(run, kernel, finish, points, terms, along, count, *arguments):
    """Launch a kernel that computes `count` sums of `terms` terms at each point; where several
    blocks share the terms, the kernel `finish` adds their partial sums."""
    require_number(points)
    require_number(terms)
    lanes, splits = shares(points, terms, along)
    partial = run.empty((points * splits * count if splits > 1 else 0,))
    run.launch_groups(kernel, points * splits, lanes, *arguments, splits, partial)
    if splits > 1:
        lanes = power_of_two(splits, THREADS)
        run.launch_groups(finish, points, lanes, *arguments, splits, partial)


def reduce_rows(run, x, out, operation):
    """out[s] = the SUM, PRODUCT or MAXIMUM (nan if an entry is nan) of x[s, :]; x (stack, n)."""
    each_row(run, reduced_rows, *x.shape, x, out, operation)


@kernel("real[:, ::1], real[::1], int64, int64")
def reduced_rows(x, out, operation, lanes):
    """`reduce_rows`, a group of threads for each row."""
    stack, n = x.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    lane, groups = cuda.threadIdx.x & (lanes - 1), cuda.blockDim.x // lanes
    for start in range(cuda.blockIdx.x * groups, stack, cuda.gridDim.x * groups):
        # groups without a row repeat the last one, as all threads of a block must call `reduced`
        s = min(start + cuda.threadIdx.x // lanes, stack - 1)
        total = x.dtype.type(0 if operation == SUM else 1)
        if operation == MAXIMUM:
            total = x.dtype.type(-math.inf)
        for i in range(lane, n, lanes):
            if operation == SUM:
                total += x[s, i]
            elif operation == PRODUCT:
                total *= x[s, i]
            else:
                total = real_maximum(total, x[s, i])
        total = reduced(total, lanes, shared, operation)
        if lane == 0:
            out[s] = total


def row_by_row(points, terms):
    """Decide whether one group of threads for each of `points` rows of `terms` entries keeps a
    device busy; a few long rows need several blocks a row."""
    return terms <= 8 * THREADS or points * THREADS >= BUSY_THREADS


def each_row(run, kernel, points, terms, *arguments):
    """Launch a kernel with a group of threads for each row: one per entry in short rows, so that
    neighbours read neighbouring entries, else one per four entries."""
    require_number(points)
    require_number(terms)
    lanes = max(power_of_two(terms, 32), power_of_two((terms + 3) // 4, THREADS))
    run.launch_groups(kernel, points, lanes, *arguments)
