"""What Jacobi's methods for eigenvalues and singular values share: pairs of places, none of which
is in two pairs, so that all of a round are rotated at once (Brent and Luk 1985)."""

# mypy: allow-untyped-defs

import math

import numpy as np

from ..common.limits import LEADING
from .base import device

SWEEPS = 60
"""The most sweeps over all pairs; ten are many."""


@device
def round_pair(turn, pair, players):
    """The places (low, high) of a pair in a round of a tournament of an even number of players:
    each meets each other once in players - 1 rounds."""
    others = players - 1
    first = (turn + pair) % others
    second = (turn - pair + others) % others
    if pair == 0:
        second = others
    return min(first, second), max(first, second)


@device
def rotation_tangent(difference, double):
    """The tangent t of the smaller angle with t^2 + 2 t z - 1 = 0 for z = difference / double,
    where `double` is not zero."""
    one = double / double
    ratio = difference / double
    root = abs(ratio) + math.sqrt(one + ratio * ratio)
    return math.copysign(one, ratio) / root


@device
def column_sign(matrix, rows, column):
    """The sign of the first of the largest entries in a column; entries within rounding of each
    other count as equally large."""
    one = matrix.dtype.type(1)
    largest = matrix.dtype.type(0)
    for i in range(rows):
        largest = max(largest, abs(matrix[i, column]))
    least = matrix.dtype.type(LEADING) * largest
    for i in range(rows):
        if abs(matrix[i, column]) >= least:
            return -one if matrix[i, column] < 0 else one
    return one


def precision_of(kind):
    """The distance of 1 to the next number, in double precision."""
    return np.float64(np.finfo(kind).eps)
