"""Norms, signs and precisions."""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from ..common.module import LEADING_RATIO
from .base import device, kernel
from .elementary import real_maximum


def precision_of(kind):
    """The machine epsilon of a type, as a float64."""
    return np.float64(np.finfo(kind).eps)


@device
def power_below(size):
    """A power of two whose product with `size` is between 1/2 and 1; 1 for zero."""
    _, exponent = math.frexp(size)
    return math.ldexp(1.0, -min(max(exponent, -1000), 1000))


@device
def leading_sign(x):
    """The sign of the first of the largest entries of a vector. Entries that differ by rounding
    count as equally large."""
    one = x.dtype.type(1)
    largest = x.dtype.type(0)
    for i in range(len(x)):
        largest = max(largest, abs(x[i]))
    threshold = x.dtype.type(LEADING_RATIO) * largest
    for i in range(len(x)):
        if abs(x[i]) >= threshold:
            return -one if x[i] < 0 else one
    return one


@device
def largest_entry(a):
    """The largest absolute value in a matrix; nan if an entry is nan."""
    largest = abs(a.dtype.type(0))
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            largest = real_maximum(abs(a[i, j]), largest)
    return largest


@device
def largest_size(sizes, count):
    """The largest of the first `count` sizes; nan if one is nan."""
    largest = sizes.dtype.type(0)
    for i in range(count):
        largest = real_maximum(sizes[i], largest)
    return largest


@kernel("real[:, :, ::1], real[:, ::1], real[::1]")
def measure_columns(a, sums, sizes):
    """sizes (stack,) = the 1-norms, nan if an entry is nan, a block for each matrix. sums (stack,
    n): work array."""
    stack, n, _ = a.shape
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        for j in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            total = a.dtype.type(0)
            for i in range(n):
                total += abs(a[s, i, j])
            sums[s, j] = total
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            sizes[s] = largest_size(sums[s], n)


def column_sizes(run, *stacks):
    """The 1-norms (count, stack) of the square matrices in `count` stacks, as an array of the
    host."""
    stack, n, _ = stacks[0].shape
    sizes, sums = run.empty((len(stacks), stack)), run.empty((stack, n))
    for number, a in enumerate(stacks):
        # one thread also for matrices without rows, whose norms are 0
        run.launch_matrices(measure_columns, stack, max(n, 1), a, sums, run.part(sizes, number))
    return run.to_host(sizes)
