"""The adjugate of a square matrix and its derivative, by its LU factors."""

# mypy: allow-untyped-defs

import numpy as np
from numba import cuda

from .base import kernel, position
from .copies import copied
from .lu import lu_det, lu_factor, lu_inverse, lu_invertible


def adjugate(run, a, out, failure):
    """out (stack, n, n) = det(A) inv(A) for each matrix of `a`. It fails where one is singular."""
    run.each(scale_matrices, out.size, inverted(run, a, out, failure), out)


def inverted(run, a, out, failure):
    """The determinants of the matrices of `a`, and in `out` their inverses."""
    stack, n, _ = a.shape
    lu, pivots, size = copied(run, a), run.empty((stack, n), np.int32), run.empty((stack,))
    lu_factor(run, lu, pivots)
    lu_invertible(run, lu, failure)
    lu_det(run, lu, pivots, size)
    lu_inverse(run, lu, pivots, out)
    return size


def adjugate_derivative(run, a, change, out, failure):
    """out (stack, n, n) = det(A) (tr(inv(A) dA) inv(A) - inv(A) dA inv(A)) for each matrix of `a`
    and of `change`. It fails where one of `a` is singular."""
    inverse, moved = run.empty(a.shape), run.empty(a.shape)
    size = inverted(run, a, inverse, failure)
    run.each(matrix_products, out.size, inverse, change, moved)
    run.each(derivative_entries, out.size, size, inverse, moved, out)


def adjugate_jacobian(run, a, out, failure):
    """out (stack, n, n, n, n) = of each matrix of `a` the derivative of its adjugate by each entry,
    whose indices come last. It fails where one is singular."""
    inverse = run.empty(a.shape)
    size = inverted(run, a, inverse, failure)
    run.each(jacobian_entries, out.size, size, inverse, out)


@kernel("real[:, :, ::1], real[:, :, ::1], real[:, :, ::1]")
def matrix_products(a, b, out):
    """The product of each two matrices, every entry by one thread."""
    _, n, _ = out.shape
    for entry in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        s, i, j = position(entry, out.shape)
        total = out.dtype.type(0)
        for k in range(n):
            total += a[s, i, k] * b[s, k, j]
        out[s, i, j] = total


@kernel("real[::1], real[:, :, ::1], real[:, :, ::1], real[:, :, ::1]")
def derivative_entries(size, inverse, moved, out):
    """size (tr(moved) inverse - moved inverse), every entry by one thread."""
    _, n, _ = out.shape
    for entry in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        s, i, j = position(entry, out.shape)
        total = out.dtype.type(0)
        for k in range(n):
            total += moved[s, k, k] * inverse[s, i, j] - moved[s, i, k] * inverse[s, k, j]
        out[s, i, j] = size[s] * total


@kernel("real[::1], real[:, :, ::1], real[:, :, :, :, ::1]")
def jacobian_entries(size, inverse, out):
    """size (inv[i, j] inv[m, k] - inv[i, k] inv[m, j]), every entry by one thread."""
    _, n, _ = inverse.shape
    for entry in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        m, k, j = entry % n, entry // n % n, entry // n // n % n
        i, s = entry // (n * n * n) % n, entry // (n * n * n * n)
        one, two = inverse[s, i, j] * inverse[s, m, k], inverse[s, i, k] * inverse[s, m, j]
        out[s, i, j, k, m] = size[s] * (one - two)


@kernel("real[::1], real[:, :, ::1]")
def scale_matrices(factors, out):
    """Multiply each matrix by its factor."""
    _, n, _ = out.shape
    for entry in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        s, place = entry // (n * n), entry % (n * n)
        out[s, place // n, place % n] *= factors[s]
