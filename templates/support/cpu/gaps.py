"""Reciprocals of the differences and sums of all pairs of entries of a vector."""

# mypy: allow-untyped-defs

import numpy as np

from ..internals.arithmetic import epsilon
from ..internals.functions import compiled


@compiled(linked=True)
def rounding_level(row):
    """Compute the size below which a difference or sum of two entries may consist of rounding
    errors."""
    largest = row.dtype.type(0)
    for value in row:
        largest = max(largest, abs(value))
    return 10 * len(row) * epsilon(row) * largest


@compiled()
def rounding_levels(x, out):
    """out (stack,) = the `rounding_level` of each row of `x` (stack, n)."""
    for s in range(len(x)):
        out[s] = rounding_level(x[s])


@compiled()
def reciprocal_gaps(x, out):
    """out (stack, n, n) = 1 / (x[j] - x[i]), zero on the diagonal; nan where two entries of a row
    of `x` (stack, n) are equal up to rounding."""
    stack, n = x.shape
    for s in range(stack):
        level = rounding_level(x[s])
        for i in range(n):
            for j in range(n):
                gap = x[s, j] - x[s, i]
                out[s, i, j] = 1 / gap if abs(gap) > level else np.nan
            out[s, i, i] = 0


@compiled()
def reciprocal_sums(x, out):
    """out (stack, n, n) = 1 / (x[i] + x[j]); nan where that is zero up to rounding."""
    stack, n = x.shape
    for s in range(stack):
        level = rounding_level(x[s])
        for i in range(n):
            for j in range(n):
                total = x[s, i] + x[s, j]
                out[s, i, j] = 1 / total if abs(total) > level else np.nan
