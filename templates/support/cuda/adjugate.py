"""The adjugate of a square matrix and its derivative, by LU factors; for regular matrices only."""

# mypy: allow-untyped-defs

import numpy as np
from numba import cuda

from .base import kernel, position
from .blas import product
from .copies import copied
from .lu import lu_det, lu_factor, lu_inverse, lu_invertible


def adjugate(run, a, out, failure):
    """out (stack, n, n) = det(A) inv(A) for each matrix of `a`. It fails where one is singular."""
    run.launch(scale_matrices, out.size, invert(run, a, out, failure), out)


def invert(run, a, out, failure):
    """Put the inverses of the matrices of `a` into `out` and return their determinants."""
    stack, n, _ = a.shape
    lu, pivots, det = copied(run, a), run.empty((stack, n), np.int32), run.empty((stack,))
    lu_factor(run, lu, pivots)
    lu_invertible(run, lu, failure)
    lu_det(run, lu, pivots, det)
    lu_inverse(run, lu, pivots, out)
    return det


def adjugate_derivative(run, a, tangent, out, failure):
    """out (stack, n, n) = det(A) (tr(inv(A) dA) inv(A) - inv(A) dA inv(A)), the derivative of the
    adjugate along dA = `tangent`. Fails where a matrix of `a` is singular."""
    inverse = run.empty(a.shape)
    det = invert(run, a, inverse, failure)
    step = product(run, inverse, False, tangent, False)
    run.launch(derivative_entries, out.size, det, inverse, step, out)


def adjugate_jacobian(run, a, out, failure):
    """out (stack, n, n, n, n) = the derivatives of the adjugate of each matrix of `a` by each of
    its entries, whose indices come last. Fails where a matrix is singular."""
    inverse = run.empty(a.shape)
    det = invert(run, a, inverse, failure)
    run.launch(jacobian_entries, out.size, det, inverse, out)


@kernel("real[::1], real[:, :, ::1], real[:, :, ::1], real[:, :, ::1]")
def derivative_entries(det, inverse, step, out):
    """out = det (tr(step) inverse - step inverse), a thread for each entry."""
    _, n, _ = out.shape
    for entry in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        s, i, j = position(entry, out.shape)
        total = out.dtype.type(0)
        for k in range(n):
            total += step[s, k, k] * inverse[s, i, j] - step[s, i, k] * inverse[s, k, j]
        out[s, i, j] = det[s] * total


@kernel("real[::1], real[:, :, ::1], real[:, :, :, :, ::1]")
def jacobian_entries(det, inverse, out):
    """out[i, j, k, m] = det (inv[i, j] inv[m, k] - inv[i, k] inv[m, j]), a thread for each
    entry."""
    _, n, _ = inverse.shape
    for entry in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        m, k, j = entry % n, entry // n % n, entry // n // n % n
        i, s = entry // (n * n * n) % n, entry // (n * n * n * n)
        first, second = inverse[s, i, j] * inverse[s, m, k], inverse[s, i, k] * inverse[s, m, j]
        out[s, i, j, k, m] = det[s] * (first - second)


@kernel("real[::1], real[:, :, ::1]")
def scale_matrices(factors, out):
    """Multiply each matrix by its factor, a thread for each entry."""
    _, n, _ = out.shape
    for entry in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        s, place = entry // (n * n), entry % (n * n)
        out[s, place // n, place % n] *= factors[s]
