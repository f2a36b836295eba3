"""The sine, cosine and hyperbolic tangent of a matrix and their Fréchet derivatives, by the
exponential."""

# mypy: allow-untyped-defs

import numpy as np

from .copies import copy_block
from .exponential import expm_blocks, halvings_for, keep_blocks
from .frechet import (
    combine_blocks,
    divide_blocks,
    frechet_blocks,
    last_entries,
    multiply_blocks,
    scaled_blocks,
)
from .norms import column_sizes
from .shares import clear

MAX_TANGENT_NORM = 32.0
"""A hyperbolic tangent of a larger norm is close to a pole."""
ZEROING_EXPONENT = -4000
"""2**ZEROING_EXPONENT times any double is zero."""


def rotations(run, x):
    """Fréchet blocks of exp([[0, -A], [A, 0]]) = [[cos A, -sin A], [sin A, cos A]]."""
    stack, n, _ = x[0].shape
    wide = []
    for entry in x:
        if entry is not None:
            argument = run.empty((stack, 2 * n, 2 * n))
            clear(run, argument)
            copy_block(run, entry, argument, place=(n, 0))
            copy_block(run, entry, argument, negated=True, place=(0, n))
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


def ratio_of_blocks(run, y, failure):
    """tanh(y) = (exp(2 y) - I) inv(exp(2 y) + I). Fails at a pole."""
    power = expm_blocks(run, combine_blocks(run, 0.0, [(2.0, y)]))
    ratio = combine_blocks(run, -1.0, [(1.0, power)])
    divide_blocks(run, ratio, combine_blocks(run, 1.0, [(1.0, power)]), failure)
    return ratio


def tanhm_blocks(run, x, failure):
    """The hyperbolic tangent of Fréchet blocks, by doublings of the argument as on the CPU. Fails
    at a pole.

    The host decides for each matrix between the formula and exponentials; each computes on zeros in
    place of the matrices that it is not for.
    """
    doublings = halvings_for(column_sizes(run, x[0])[0], 1.0)
    out = ratio_of_blocks(run, scaled_blocks(run, x, -doublings), failure)
    for count in range(doublings.max(initial=0)):
        near_pole = column_sizes(run, out[0])[0] > MAX_TANGENT_NORM
        doubled = (doublings > count) & ~near_pole
        restarted = (doublings > count) & near_pole
        part = scaled_blocks(run, out, np.where(doubled, 0, ZEROING_EXPONENT))
        square = combine_blocks(run, 1.0, [(1.0, multiply_blocks(run, part, part))])
        double = combine_blocks(run, 0.0, [(2.0, part)])
        divide_blocks(run, double, square, failure)
        keep_blocks(run, double, doubled, out)
        if restarted.any():
            exponents = np.where(restarted, count + 1 - doublings, ZEROING_EXPONENT)
            ratio = ratio_of_blocks(run, scaled_blocks(run, x, exponents), failure)
            keep_blocks(run, ratio, restarted, out)
    return out


def tanhm(run, *arrays):
    """out (stack, n, n) = the k-th derivative of the hyperbolic tangent at A, for arrays A, E_1,
    ... E_k, out, failure. Fails where A has an eigenvalue (j + 1/2) pi i, a pole."""
    *operands, out, failure = arrays
    double = run.in_double()
    last_entries(double, tanhm_blocks(double, frechet_blocks(double, operands), failure), out)
