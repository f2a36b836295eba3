"""The sine, cosine and hyperbolic tangent of Fréchet blocks, through the exponential."""

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

TANGENT_BOUND = 32.0
"""The norm of a hyperbolic tangent beyond which a pole is close."""


def rotations(run, x):
    """The exponentials of the Fréchet blocks [[0, -A], [A, 0]], which are [[cos A, -sin A],
    [sin A, cos A]]."""
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


VANISHING = 4000
"""So many halvings make any number zero."""


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
    need not be one of tanh(2 y), by exponentials again. The host decides, matrix by matrix; what
    is done for others of the stack works at zeros.
    """
    doublings = halvings_for(column_sizes(run, x[0])[0], 1.0)
    out = ratio_of_blocks(run, scaled_blocks(run, x, -doublings), failure)
    for done in range(doublings.max(initial=0)):
        more = doublings > done
        far = column_sizes(run, out[0])[0] > TANGENT_BOUND
        part = scaled_blocks(run, out, np.where(more & ~far, 0, -VANISHING))
        square = combine_blocks(run, 1.0, [(1.0, multiply_blocks(run, part, part))])
        double = combine_blocks(run, 0.0, [(2.0, part)])
        divide_blocks(run, double, square, failure)
        keep_blocks(run, double, more & ~far, out)
        if (more & far).any():
            exponents = np.where(more & far, done + 1 - doublings, -VANISHING)
            ratio = ratio_of_blocks(run, scaled_blocks(run, x, exponents), failure)
            keep_blocks(run, ratio, more & far, out)
    return out


def tanhm(run, *arrays):
    """out (stack, n, n) = the k-th derivative of the hyperbolic tangent at A, for arrays A, E_1,
    ... E_k, out, and last the failure: where A has an eigenvalue (j + 1/2) pi i, at a pole."""
    *operands, out, failure = arrays
    double = run.in_double()
    last_entries(double, tanhm_blocks(double, frechet_blocks(double, operands), failure), out)
