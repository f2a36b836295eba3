"""Determinants of factored matrices, from their diagonals."""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import device, kernel

DET = 0
LOGABSDET = 1
LOGDET = 2


def determinants(run, a, out, kind, squared=False, pivots=None):
    """out (stack,) = the product of the diagonal of each matrix of `a` (stack, n, n), or what
    `kind` says of it. squared: of the squares of its entries; pivots (stack, n): an entry changes
    its sign where they exchange rows."""
    exchanged = pivots is not None
    if pivots is None:
        pivots = run.empty((1, 1), np.int32)
    flags = kind, int(squared), int(exchanged)
    run.each(diagonals, len(out), a, pivots, out, *flags)


@device
def logarithm(x):
    """log(x) of what is not negative: -inf for zero, for which Python's raises."""
    return math.log(x) if x > 0 else -(x**0) / x


@kernel("real[:, :, ::1], int32[:, ::1], real[::1], int64, int64, int64")
def diagonals(a, pivots, out, kind, squared, exchanged):
    """`determinants`, a thread for each of them."""
    stack, n, _ = a.shape
    for s in range(cuda.grid(1), stack, cuda.gridsize(1)):
        product = out.dtype.type(1)
        sign = out.dtype.type(1)
        size = out.dtype.type(0)
        for i in range(n):
            entry = a[s, i, i]
            if exchanged and pivots[s, i] != i + 1:
                entry = -entry
            if kind == DET:
                product *= entry * entry if squared else entry
            else:
                size += logarithm(abs(entry))
                if entry < 0:
                    sign = -sign
        if kind == DET:
            out[s] = product
        elif kind == LOGDET and sign < 0 and size > -math.inf:
            out[s] = math.nan
        else:
            out[s] = size + size if squared else size
