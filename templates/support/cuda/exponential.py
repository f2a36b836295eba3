"""The exponential of Fréchet blocks, by scaling and squaring with a Padé approximant (Higham 2005).

How often each matrix of a stack is halved is found on the device.
"""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import THREADS, device, kernel, power_of_two
from .blas import gemm
from .blocks import entries, position
from .frechet import (
    combine_blocks,
    divide_blocks,
    empty_blocks,
    frechet_blocks,
    last_entries,
    multiply_blocks,
    scaled_blocks,
)
from .norms import largest_column, largest_size

PADE_BOUND = 4.74
"""The norm up to which the approximant of degree 13 suffices for derivatives too (Al-Mohy and
Higham 2009, "Computing the Fréchet derivative of the matrix exponential")."""


@kernel("float64[:, :, ::1], float64[:, ::1], float64, int32[::1]")
def count_halvings(a, sums, bound, halvings):
    """halvings[s] = how often a matrix is to be halved to get a norm of at most `bound`."""
    for s in range(cuda.blockIdx.x, a.shape[0], cuda.gridDim.x):
        norm = largest_column(a[s], sums[s])
        if cuda.threadIdx.x == 0:
            halvings[s] = 0
            if bound < norm < math.inf:
                halvings[s] = math.ceil(math.log2(norm / bound))


@device
def log_norm_of_power(a, power, row, product):
    """log2 of the 1-norm of abs(a) ** power, for all threads of a block."""
    n = a.shape[0]
    size = 0.0
    cuda.syncthreads()
    for j in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        row[j] = 1.0
    for _ in range(power):
        cuda.syncthreads()
        for j in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            total = 0.0
            for i in range(n):
                total += row[i] * abs(a[i, j])
            product[j] = total
        cuda.syncthreads()
        largest = largest_size(product, n)
        for j in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            row[j] = product[j] / largest if largest > 0 else 0.0
        size += math.log2(largest) if largest > 0 else -math.inf
    return size


@kernel(
    "float64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1], "
    "float64[:, :, ::1], float64[:, :, ::1], int32[::1], int32[::1]"
)
def spare_halvings(a, fourth, sixth, eighth, tenth, work, halvings, spared):
    """spared[s] = how many of its halvings a matrix can do without, for the approximant of degree
    13; they are taken off. a: the halved matrix; then its powers; work (stack, 2, n).

    What counts is how its powers grow, which is less than its norm says for a matrix far from
    normal (Al-Mohy and Higham 2009, algorithm 6.1). The second bound, 2**-116.45 of what the power
    27 is relative to the matrix, keeps rounding errors of the approximant small.
    """
    for s in range(cuda.blockIdx.x, a.shape[0], cuda.gridDim.x):
        sums, row = work[s, 0], work[s, 1]
        first = max(
            largest_column(fourth[s], sums) ** 0.25, largest_column(sixth[s], sums) ** (1 / 6)
        )
        second = max(
            largest_column(eighth[s], sums) ** 0.125, largest_column(tenth[s], sums) ** 0.1
        )
        norm = largest_column(a[s], sums)
        size = log_norm_of_power(a[s], 27, row, sums)
        if cuda.threadIdx.x == 0:
            growth = min(first, second)
            count = halvings[s]
            if growth * 2.0**count > PADE_BOUND:
                count = math.floor(math.log2(PADE_BOUND / growth))
            count = max(0, min(count, halvings[s]))
            while count > 0 and size - math.log2(norm) + 26 * count > 116.45 - 53:
                count -= 1
            spared[s] = count
            halvings[s] -= count
        cuda.syncthreads()


@kernel("float64[:, :, ::1], int32[::1], int64, float64[:, :, ::1]")
def keep_where_more(a, times, done, out):
    """out[s] = a[s] where times[s] is more than `done`."""
    for number in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        s, i, j = position(number, out.shape)
        if times[s] > done:
            out[s, i, j] = a[s, i, j]


def keep_blocks(run, blocks, times, done, out):
    """Replace those matrices of `out` whose `times` are more than `done` by those of `blocks`."""
    for entry, target in zip(blocks, out, strict=True):
        run.launch(keep_where_more, *entries(entry.size), entry, times, done, target)


def square_blocks(run, x, times):
    """Square Fréchet blocks in place, each matrix as often as `times` says; for that the host has
    to know how often at most."""
    square = empty_blocks(run, x)
    for done in range(int(run.fetched(times).max(initial=0))):
        multiply_blocks(run, x, x, square)
        keep_blocks(run, square, times, done, x)


def halved(run, x):
    """Fréchet blocks halved so often that the approximant suffices, its powers 2, 4 and 6, and how
    often each matrix was."""
    stack, n, _ = x[0].shape
    halvings, spared = run.empty((stack,), np.int32), run.empty((stack,), np.int32)
    work = run.empty((stack, 2, n), np.float64)
    threads = power_of_two(n, THREADS)
    sums = run.empty((stack, n), np.float64)
    run.launch(count_halvings, stack, threads, x[0], sums, PADE_BOUND, halvings)
    small = scaled_blocks(run, x, halvings, -1)
    second = multiply_blocks(run, small, small)
    fourth = multiply_blocks(run, second, second)
    sixth = multiply_blocks(run, fourth, second)
    eighth, tenth = run.empty(x[0].shape, np.float64), run.empty(x[0].shape, np.float64)
    gemm(run, 1.0, fourth[0], False, fourth[0], False, 0.0, eighth)
    gemm(run, 1.0, fourth[0], False, sixth[0], False, 0.0, tenth)
    powers = small[0], fourth[0], sixth[0], eighth, tenth
    run.launch(spare_halvings, stack, threads, *powers, work, halvings, spared)
    parts = (small, 1), (second, 2), (fourth, 4), (sixth, 6)
    return [scaled_blocks(run, part, spared, power) for part, power in parts], halvings


def pade_weights():
    """The coefficients of the numerator of the approximant of degree 13."""
    weights = [1.0]
    for j in range(1, 14):
        weights.append(weights[-1] * (14 - j) / (j * (27 - j)))
    return weights


def expm_blocks(run, x):
    """The exponential of Fréchet blocks."""
    (small, second, fourth, sixth), halvings = halved(run, x)
    weights = pade_weights()
    sums = []
    for odd in range(2):
        w = weights[odd::2]
        high = combine_blocks(run, 0.0, [(w[4], second), (w[5], fourth), (w[6], sixth)])
        product = multiply_blocks(run, sixth, high)
        low = [(w[1], second), (w[2], fourth), (w[3], sixth), (1.0, product)]
        sums.append(combine_blocks(run, w[0], low))
    even, odd = sums
    uneven = multiply_blocks(run, small, odd)
    result = empty_blocks(run, x)
    combine_blocks(run, 0.0, [(1.0, even), (1.0, uneven)], result)
    below = combine_blocks(run, 0.0, [(1.0, even), (-1.0, uneven)])
    divide_blocks(run, result, below)
    square_blocks(run, result, halvings)
    return result


def expm(run, *arrays):
    """out (stack, n, n) = the k-th derivative of the exponential at A, for arrays A, E_1, ...
    E_k, out."""
    double = run.in_double()
    last_entries(double, expm_blocks(double, frechet_blocks(double, arrays[:-1])), arrays[-1])
