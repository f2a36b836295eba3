"""The matrix exponential and its Fréchet derivatives, by scaling and squaring with a Padé
approximant (Higham 2005). The host chooses the number of halvings of each matrix by norms from the
device."""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import kernel, position
from .blas import product
from .frechet import (
    combine_blocks,
    divide_blocks,
    frechet_blocks,
    last_entries,
    multiply_blocks,
    scaled_blocks,
)
from .norms import column_sizes, largest_size

MAX_PADE_NORM = 4.74
"""The norm up to which the approximant of degree 13 suffices, for derivatives, too (Al-Mohy and
Higham 2009, "Computing the Fréchet derivative of the matrix exponential")."""


def halvings_for(norms, bound):
    """The numbers of halvings after which matrices of these norms (stack,) have norms of at most
    `bound`."""
    large = (norms > bound) & (norms < np.inf)
    return np.where(large, np.ceil(np.log2(np.where(large, norms, bound) / bound)), 0).astype(int)


@kernel("float64[:, :, ::1], float64[:, :, ::1], int64, float64[::1]")
def measure_power(a, work, power, sizes):
    """sizes (stack,) = log2 of the 1-norms of abs(a) ** power, a block for each matrix: the largest
    entry of a row of ones times the power. The row is normalised in each step, as it could
    overflow. work (stack, 2, n): work array."""
    n = a.shape[1]
    for s in range(cuda.blockIdx.x, a.shape[0], cuda.gridDim.x):
        row, product = work[s, 0], work[s, 1]
        size = 0.0
        for j in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            row[j] = 1.0
        for _ in range(power):
            cuda.syncthreads()
            for j in range(cuda.threadIdx.x, n, cuda.blockDim.x):
                total = 0.0
                for i in range(n):
                    total += row[i] * abs(a[s, i, j])
                product[j] = total
            cuda.syncthreads()
            largest = largest_size(product, n)
            for j in range(cuda.threadIdx.x, n, cuda.blockDim.x):
                row[j] = product[j] / largest if largest > 0 else 0.0
            size += math.log2(largest) if largest > 0 else -math.inf
        if cuda.threadIdx.x == 0:
            sizes[s] = size


def superfluous_halvings(run, a, fourth, sixth, norms, halvings):
    """The number of halvings of each matrix that the approximant of degree 13 does not need
    (Al-Mohy and Higham 2009, algorithm 6.1). a: the halved matrices, of these norms (stack,);
    fourth, sixth: their powers.

    The powers of a matrix far from normal grow more slowly than those of its norm. The second
    bound, 2**-116.45 times the norm of abs(a)**27 relative to that of abs(a), keeps the error of
    the approximant within rounding."""
    stack, n, _ = a.shape
    eighth, tenth = (product(run, fourth, False, power, False) for power in (fourth, sixth))
    degrees = np.array([[4], [6], [8], [10]])
    roots = column_sizes(run, fourth, sixth, eighth, tenth) ** (1 / degrees)
    growth = np.minimum(np.maximum(*roots[:2]), np.maximum(*roots[2:]))
    sizes = run.empty((stack,))
    run.launch_matrices(measure_power, stack, n, a, run.empty((stack, 2, n)), 27, sizes)
    superfluous = np.where(
        growth * 2.0**halvings > MAX_PADE_NORM, np.floor(np.log2(MAX_PADE_NORM / growth)), halvings
    )
    room = np.floor((116.45 - 53 - run.to_host(sizes) + np.log2(norms)) / 26)
    return np.fmax(np.fmin(np.fmin(superfluous, room), halvings), 0).astype(int)


@kernel("float64[:, :, ::1], int32[::1], float64[:, :, ::1]")
def keep_entries(a, is_kept, out):
    """out[s] = a[s] where is_kept[s] is not 0."""
    for number in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        s, i, j = position(number, out.shape)
        if is_kept[s] != 0:
            out[s, i, j] = a[s, i, j]


def keep_blocks(run, blocks, is_kept, out):
    """Replace the matrices of `out` where is_kept (stack,) by those of `blocks`."""
    flags = run.to_device(is_kept, np.int32)
    for entry, target in zip(blocks, out, strict=True):
        run.launch(keep_entries, entry.size, entry, flags, target)


def halved(run, x):
    """Halve Fréchet blocks until the approximant suffices. Returns ([blocks, their powers 2, 4 and
    6], number of halvings of each matrix)."""
    (norms,) = column_sizes(run, x[0])
    halvings = halvings_for(norms, MAX_PADE_NORM)
    small = scaled_blocks(run, x, -halvings)
    second = multiply_blocks(run, small, small)
    fourth = multiply_blocks(run, second, second)
    sixth = multiply_blocks(run, fourth, second)
    parts = [small, second, fourth, sixth]
    if halvings.any():
        powers = small[0], fourth[0], sixth[0]
        superfluous = superfluous_halvings(run, *powers, norms * 0.5**halvings, halvings)
        halvings = halvings - superfluous
        if superfluous.any():
            pairs = zip(parts, (1, 2, 4, 6), strict=True)
            parts = [scaled_blocks(run, part, superfluous * power) for part, power in pairs]
    return parts, halvings


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
    result = combine_blocks(run, 0.0, [(1.0, even), (1.0, uneven)])
    divide_blocks(run, result, combine_blocks(run, 0.0, [(1.0, even), (-1.0, uneven)]))
    for count in range(halvings.max(initial=0)):
        keep_blocks(run, multiply_blocks(run, result, result), halvings > count, result)
    return result


def expm(run, *arrays):
    """out (stack, n, n) = the k-th derivative of the exponential at A, for arrays A, E_1, ...
    E_k, out."""
    double = run.in_double()
    last_entries(double, expm_blocks(double, frechet_blocks(double, arrays[:-1])), arrays[-1])
