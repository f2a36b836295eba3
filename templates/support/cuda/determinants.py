"""Determinants of factored matrices, from their diagonals."""

# mypy: allow-untyped-defs

import math

from numba import cuda

from .base import device, kernel
from .blocks import entries

DET = 0
LOGABSDET = 1
LOGDET = 2


def determinants(run, a, out, kind, squared):
    """out (stack,) = the product of the diagonal of each matrix of `a` (stack, n, n), or what
    `kind` says of it; squared: of the squares of its entries."""
    run.launch(diagonals, *entries(len(out)), a, out, kind, int(squared))


@device
def logarithm(x):
    """log(x) of what is not negative: -inf for zero, for which Python's raises."""
    return math.log(x) if x > 0 else -(x**0) / x


@device
def put_determinant(out, s, factor, size, kind):
    """out[s] from the product of a diagonal, or from the sum of logarithms of its sizes and its
    sign."""
    if kind == DET:
        out[s] = factor
    elif kind == LOGDET and factor < 0 and size > -math.inf:
        out[s] = math.nan
    else:
        out[s] = size


@kernel("real[:, :, ::1], real[::1], int64, int64")
def diagonals(a, out, kind, squared):
    """Determinants by diagonals, a thread for each of them."""
    stack, n, _ = a.shape
    for s in range(cuda.grid(1), stack, cuda.gridsize(1)):
        factor = out.dtype.type(1)
        size = out.dtype.type(0)
        for i in range(n):
            entry = a[s, i, i]
            if kind == DET:
                factor *= entry * entry if squared else entry
            else:
                size += logarithm(abs(entry))
                if entry < 0:
                    factor = -factor
        put_determinant(out, s, factor, size + size if squared else size, kind)


@kernel("real[:, :, ::1], int32[:, ::1], real[::1], int64")
def pivoted_diagonals(a, pivots, out, kind):
    """Determinants by diagonals and exchanges, a thread for each of them."""
    stack, n, _ = a.shape
    for s in range(cuda.grid(1), stack, cuda.gridsize(1)):
        factor = out.dtype.type(1)
        size = out.dtype.type(0)
        for i in range(n):
            entry = a[s, i, i] if pivots[s, i] == i + 1 else -a[s, i, i]
            if kind == DET:
                factor *= entry
            else:
                size += logarithm(abs(entry))
                if entry < 0:
                    factor = -factor
        put_determinant(out, s, factor, size, kind)
