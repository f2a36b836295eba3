"""The sine, cosine and hyperbolic tangent of Fréchet blocks, through the exponential."""

# mypy: allow-untyped-defs

import numpy as np
from numba import cuda

from .base import THREADS, kernel, power_of_two
from .blocks import entries, position
from .exponential import count_halvings, expm_blocks, keep_blocks
from .frechet import (
    combine_blocks,
    divide_blocks,
    frechet_blocks,
    last_entries,
    multiply_blocks,
    scaled_blocks,
)
from .norms import largest_column

TANGENT_BOUND = 32.0
"""The norm of a hyperbolic tangent beyond which a pole is close."""


@kernel("float64[:, :, ::1], float64[:, :, ::1]")
def rotation_argument(a, wide):
    """wide (stack, 2 n, 2 n) = [[0, -A], [A, 0]]."""
    for number in range(cuda.grid(1), a.size, cuda.gridsize(1)):
        s, i, j = position(number, a.shape)
        n = a.shape[1]
        wide[s, i, j] = 0.0
        wide[s, n + i, n + j] = 0.0
        wide[s, i, n + j] = -a[s, i, j]
        wide[s, n + i, j] = a[s, i, j]


def rotations(run, x):
    """The exponentials of the Fréchet blocks [[0, -A], [A, 0]], which are [[cos A, -sin A],
    [sin A, cos A]]."""
    stack, n, _ = x[0].shape
    wide = []
    for entry in x:
        if entry is not None:
            argument = run.empty((stack, 2 * n, 2 * n))
            run.launch(rotation_argument, *entries(entry.size), entry, argument)
            entry = argument
        wide.append(entry)
    return expm_blocks(run, wide)


def cosm(run, *arrays):
    """out (stack, n, n) = the k-th derivative of the cosine at A, for arrays A, E_1, ... E_k,
    out."""
    double = run.in_double()
    last_entries(double, rotations(double, frechet_blocks(double, arrays[:-1])), arrays[-1])


def sinm(run, *arrays):
    """out (stack, n, n) = the k-th derivative of the sine at A, for arrays A, E_1, ... E_k,
    out."""
    double = run.in_double()
    n = arrays[0].shape[1]
    last_entries(double, rotations(double, frechet_blocks(double, arrays[:-1])), arrays[-1], n)


VANISHING = 4000
"""So many halvings make any number zero."""


@kernel(
    "float64[:, :, ::1], float64[:, ::1], int32[::1], int64, int32[::1], int32[::1], int32[::1]"
)
def sort_doublings(a, sums, doublings, done, close, again, doubled):
    """For matrices that have more doublings before them than `done`, close[s] = whether the norm
    is that of a matrix close to a pole; again[s] = how often to halve the argument of the
    exponential if so, and doubled[s] = 0 if not; both else leave nothing."""
    for s in range(cuda.blockIdx.x, a.shape[0], cuda.gridDim.x):
        norm = largest_column(a[s], sums[s])
        if cuda.threadIdx.x == 0:
            more = doublings[s] > done
            far = norm > TANGENT_BOUND
            close[s] = 1 if more and far else 0
            again[s] = doublings[s] - done - 1 if more and far else VANISHING
            doubled[s] = 0 if more and not far else VANISHING


def ratio_of_blocks(run, y, failure):
    """(exp(2 y) - I) inv(exp(2 y) + I). It fails where that has a pole."""
    power = expm_blocks(run, combine_blocks(run, 0.0, [(2.0, y)]))
    ratio = combine_blocks(run, -1.0, [(1.0, power)])
    divide_blocks(run, ratio, combine_blocks(run, 1.0, [(1.0, power)]), failure)
    return ratio


def tanhm_blocks(run, x, failure):
    """The hyperbolic tangent of Fréchet blocks. It fails where that has a pole.

    From a fraction of the argument on by tanh(2 y) = 2 tanh(y) / (1 + tanh(y)**2), which loses
    nothing where exponentials are large and small at once; close to a pole of tanh(y), which
    need not be one of tanh(2 y), by exponentials again. For that the host has to know what the
    device finds.
    """
    stack, n, _ = x[0].shape
    threads = power_of_two(n, THREADS)
    sums = run.empty((stack, n))
    doublings, close, again, doubled = (run.empty((stack,), np.int32) for _ in range(4))
    run.launch(count_halvings, stack, threads, x[0], sums, 1.0, doublings)
    out = ratio_of_blocks(run, scaled_blocks(run, x, doublings, -1), failure)
    for done in range(int(run.fetched(doublings).max(initial=0))):
        sorted_out = close, again, doubled
        run.launch(sort_doublings, stack, threads, out[0], sums, doublings, done, *sorted_out)
        part = scaled_blocks(run, out, doubled, -1)
        square = combine_blocks(run, 1.0, [(1.0, multiply_blocks(run, part, part))])
        double = combine_blocks(run, 0.0, [(2.0, part)])
        divide_blocks(run, double, square, failure)
        keep_blocks(run, double, doublings, done, out)
        if run.fetched(close).any():
            ratio = ratio_of_blocks(run, scaled_blocks(run, x, again, -1), failure)
            keep_blocks(run, ratio, close, 0, out)
    return out


def tanhm(run, *arrays):
    """out (stack, n, n) = the k-th derivative of the hyperbolic tangent at A, for arrays A, E_1,
    ... E_k, out, and last the failure: where A has an eigenvalue (j + 1/2) pi i, at a pole."""
    *operands, out, failure = arrays
    double = run.in_double()
    last_entries(double, tanhm_blocks(double, frechet_blocks(double, operands), failure), out)
