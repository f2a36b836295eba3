"""Triangular matrices: systems, inverses and determinants. The other triangle is never read.

Functions that solve or invert require matrices that `triangular_invertible` accepts.
"""

# mypy: allow-untyped-defs

from numba import cuda

from .base import device, kernel
from .copies import in_rows, set_identity
from .determinants import DET, LOGABSDET, LOGDET, determinant
from .libraries import by_library, triangular_by_library


def triangular_invertible(run, a, failure):
    """Fail where a diagonal entry of a matrix of `a` (stack, n, n) is zero."""
    stack, n, _ = a.shape
    run.launch(find_zero_pivots, stack * n, a, run.failures, failure)


def triangular_solve_rows(run, a, b, lower, transposed):
    """Replace each row x of `b` (stack, rows, n) by inv(A) x, or by inv(A)' x."""
    stack, rows, n = b.shape
    if by_library(run, "a triangular system", n):
        triangular_by_library(run, a, b, lower, transposed)
    else:
        run.launch(triangular_sides, stack * rows, a, b, int(lower), int(transposed))


def triangular_solve_columns(run, a, b, lower, transposed):
    """Replace each column x of `b` (stack, n, columns) by inv(A) x, or by inv(A)' x."""
    in_rows(run, b, lambda rows: triangular_solve_rows(run, a, rows, lower, transposed))


def triangular_inverse(run, a, out, lower):
    """out (stack, n, n) = the inverse of each matrix of `a`."""
    set_identity(run, out)
    triangular_solve_rows(run, a, out, lower, True)


triangular_det = determinant(DET)
triangular_logabsdet = determinant(LOGABSDET)
triangular_logdet = determinant(LOGDET)


@kernel("real[:, :, ::1], int32[::1], int64")
def find_zero_pivots(a, failures, failure):
    """Fail where a diagonal entry is zero."""
    stack, n, _ = a.shape
    for entry in range(cuda.grid(1), stack * n, cuda.gridsize(1)):
        i = entry % n
        if a[entry // n, i, i] == 0:
            failures[failure] = 1


@device
def substitute(a, x, lower, transposed, unit):
    """Replace the vector x by the solution of a system with a triangle of `a`. unit: whether its
    diagonal counts as ones."""
    n = x.shape[0]
    forward = lower != transposed
    for step in range(n):
        k = step if forward else n - 1 - step
        total = x[k]
        for i in range(0 if forward else k + 1, k if forward else n):
            total -= (a[i, k] if transposed else a[k, i]) * x[i]
        x[k] = total if unit else total / a[k, k]


@kernel("real[:, :, ::1], real[:, :, ::1], int64, int64")
def triangular_sides(a, b, lower, transposed):
    """Solve for the rows of b (stack, rows, n), a thread for each."""
    stack, rows, _ = b.shape
    for side in range(cuda.grid(1), stack * rows, cuda.gridsize(1)):
        s = side // rows
        substitute(a[s], b[s, side % rows], lower, transposed, 0)
