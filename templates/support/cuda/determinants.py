"""Determinants of factored matrices, computed from their diagonals."""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import device, kernel

DET = 0
LOGABSDET = 1
"""log of the absolute value of the determinant."""
LOGDET = 2
"""log of the determinant: -inf where it is zero, nan where it is negative."""


def determinant(kind, squared=False):
    """Make the function (run, a, out) or (run, a, pivots, out) that fills out (stack,) with the
    determinants, or their logarithms, of factored matrices `a` (stack, n, n): products of
    diagonals, or of their squares if `squared`. An exchange of rows in pivots (stack, n) changes
    the sign."""

    def fill(run, a, *arrays):
        *optional, out = arrays
        (pivots,) = optional or [run.empty((1, 1), np.int32)]
        run.launch(diagonals, len(out), a, pivots, out, kind, int(squared), len(optional))

    return fill


@device
def logarithm(x):
    """log(x) for x >= 0, -inf for 0, where Python's function raises, and nan for nan."""
    return math.log(x) if x > 0 else -(x**0) / x


@kernel("real[:, :, ::1], int32[:, ::1], real[::1], int64, int64, int64")
def diagonals(a, pivots, out, kind, squared, exchanged):
    """`determinant`, a thread for each matrix."""
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
