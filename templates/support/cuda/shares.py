"""How many threads work at a kernel, and sums, products and maxima that they compute together."""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import THREADS, device, kernel, power_of_two, require_number
from .elementary import real_maximum

BUSY = 1 << 17
"""So many threads keep any device busy. Numbers of threads follow from sizes alone, so that results
do not depend on the device."""


@device
def quotient(number, divisor):
    """number // divisor of two numbers that are not negative and below 2**32. In 64 bits, or where
    the compiler does not know the sign, a division takes several times as long."""
    return np.int64(np.uint32(number) // np.uint32(divisor))


@device
def remainder(number, quotient, divisor):
    """What is left of a division."""
    return np.int64(np.uint32(number - quotient * divisor))


@device
def natural(number):
    """A number that is not negative and below 2**32, as one that the compiler knows not to be
    negative: else it asks at every index whether it counts from the end."""
    return np.int64(np.uint32(number))


@device
def turns(start, stop, step):
    """How many of the numbers start, start + step, ... are below `stop`, by the same division."""
    if start >= stop:
        return np.int64(0)
    return np.int64(np.uint32(stop - 1 - start) // np.uint32(step)) + 1


SUM = 0
PRODUCT = 1
MAXIMUM = 2


@device
def reduced(value, lanes, shared, operation):
    """The SUM, PRODUCT or MAXIMUM (nan if one is) of `value` over each group of `lanes` threads, a
    power of two, for all of them. Called by all threads of a block; `shared`: an array of as many
    entries in shared memory."""
    thread = cuda.threadIdx.x
    lane = thread & (lanes - 1)
    shared[thread] = value
    cuda.syncthreads()
    step = lanes >> 1
    while step > 0:
        if lane < step:
            other = shared[thread + step]
            if operation == SUM:
                shared[thread] += other
            elif operation == PRODUCT:
                shared[thread] *= other
            elif other > shared[thread] or other != other:
                shared[thread] = other
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
    run.each(clear_entries, array.size, array.reshape(array.size))


def shares(points, terms, along):
    """By how many threads of a block (a power of two) and how many blocks the terms of a sum are
    shared, for so many sums. along: whether neighbours in memory are terms."""
    lanes = 1
    while (
        lanes < THREADS
        and 4 * lanes <= terms
        and points * lanes < BUSY * (4 if along and lanes < 32 else 1)
        and (along or points * lanes < BUSY // 64)
    ):
        lanes *= 2
    blocks = min(BUSY // (points * lanes), terms // (16 * lanes), 1024) if points else 1
    return lanes, max(blocks, 1)


def sums(run, kernel, finish, points, terms, along, count, *arguments):
    """Launch a kernel that makes `count` sums of so many terms at each point; where several blocks
    share the terms, `finish` adds their parts."""
    require_number(points)
    require_number(terms)
    lanes, splits = shares(points, terms, along)
    partial = run.empty((points * splits * count if splits > 1 else 0,))
    run.by_groups(kernel, points * splits, lanes, *arguments, splits, partial)
    if splits > 1:
        lanes = power_of_two(splits, THREADS)
        run.by_groups(finish, points, lanes, *arguments, splits, partial)


def reduce_rows(run, x, out, operation):
    """out[s] = the SUM, PRODUCT or MAXIMUM (nan if there is one) of x[s, :]; x (stack, n)."""
    each_row(run, reduced_rows, *x.shape, x, out, operation)


@kernel("real[:, ::1], real[::1], int64, int64")
def reduced_rows(x, out, operation, lanes):
    """`reduce_rows`, each row by a group of threads."""
    stack, n = x.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    lane, groups = cuda.threadIdx.x & (lanes - 1), cuda.blockDim.x // lanes
    for first in range(cuda.blockIdx.x * groups, stack, cuda.gridDim.x * groups):
        s = min(first + cuda.threadIdx.x // lanes, stack - 1)
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
    """Whether so many rows of so many entries keep a device busy, each with threads of one block
    only."""
    return terms <= 8 * THREADS or points * THREADS >= BUSY


def each_row(run, kernel, points, terms, *arguments):
    """Launch a kernel with threads of a block for each row: one an entry in short rows, so that
    neighbours read neighbouring entries, else one for four."""
    require_number(points)
    require_number(terms)
    lanes = max(power_of_two(terms, 32), power_of_two((terms + 3) // 4, THREADS))
    run.by_groups(kernel, points, lanes, *arguments)
