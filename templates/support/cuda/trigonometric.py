"""The sine, cosine and hyperbolic tangent of jets, through the exponential."""

# mypy: allow-untyped-defs

import numpy as np

from .copies import copy_block
from .exponential import halvings_for, jet_expm, keep_jet
from .jets import jet_combine, jet_divide, jet_multiply, jet_scaled, jets, last_entries
from .norms import column_sizes
from .shares import clear

TANGENT_BOUND = 32.0
"""The norm of a hyperbolic tangent beyond which a pole is close."""


def rotations(run, x):
    """The exponentials of the jets [[0, -A], [A, 0]], which are [[cos A, -sin A],
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
    return jet_expm(run, wide)


def cosm(run, *arrays):
    """out (stack, n, n) = the k-th derivative of the cosine at A, for arrays A, E_1, ... E_k,
    out."""
    double = run.in_double()
    last_entries(double, rotations(double, jets(double, arrays[:-1])), arrays[-1])


def sinm(run, *arrays):
    """out (stack, n, n) = the k-th derivative of the sine at A, for arrays A, E_1, ... E_k,
    out."""
    double = run.in_double()
    n = arrays[0].shape[1]
    last_entries(double, rotations(double, jets(double, arrays[:-1])), arrays[-1], n)


VANISHING = 4000
"""So many halvings make any number zero."""


def jet_ratio(run, y, failure):
    """(exp(2 y) - I) inv(exp(2 y) + I). It fails where that has a pole."""
    power = jet_expm(run, jet_combine(run, 0.0, [(2.0, y)]))
    ratio = jet_combine(run, -1.0, [(1.0, power)])
    jet_divide(run, ratio, jet_combine(run, 1.0, [(1.0, power)]), failure)
    return ratio


def jet_tanhm(run, x, failure):
    """The hyperbolic tangent of a jet. It fails where that has a pole.

    From a fraction of the argument on by tanh(2 y) = 2 tanh(y) / (1 + tanh(y)**2), which loses
    nothing where exponentials are large and small at once; close to a pole of tanh(y), which
    need not be one of tanh(2 y), by exponentials again. The host decides, matrix by matrix; what
    is done for others of the stack works at zeros.
    """
    doublings = halvings_for(column_sizes(run, x[0])[0], 1.0)
    out = jet_ratio(run, jet_scaled(run, x, -doublings), failure)
    for done in range(doublings.max(initial=0)):
        more = doublings > done
        far = column_sizes(run, out[0])[0] > TANGENT_BOUND
        part = jet_scaled(run, out, np.where(more & ~far, 0, -VANISHING))
        square = jet_combine(run, 1.0, [(1.0, jet_multiply(run, part, part))])
        double = jet_combine(run, 0.0, [(2.0, part)])
        jet_divide(run, double, square, failure)
        keep_jet(run, double, more & ~far, out)
        if (more & far).any():
            exponents = np.where(more & far, done + 1 - doublings, -VANISHING)
            ratio = jet_ratio(run, jet_scaled(run, x, exponents), failure)
            keep_jet(run, ratio, more & far, out)
    return out


def tanhm(run, *arrays):
    """out (stack, n, n) = the k-th derivative of the hyperbolic tangent at A, for arrays A, E_1,
    ... E_k, out, and last the failure: where A has an eigenvalue (j + 1/2) pi i, at a pole."""
    *operands, out, failure = arrays
    double = run.in_double()
    last_entries(double, jet_tanhm(double, jets(double, operands), failure), out)
