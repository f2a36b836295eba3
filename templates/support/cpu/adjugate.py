"""The adjugate of a square matrix: by LU factors, or where it is singular by singular values."""

# mypy: allow-untyped-defs

import numpy as np

from ..internals.functions import compiled
from .lu import lu_det, lu_factor, lu_inverse
from .singular import singular_vectors


@compiled(counted=True)
def adjugate(a, out):
    """out (stack, n, n) = the adjugate of each matrix of `a`: det(A) inv(A), or nearly so where A
    is singular up to half the digits, for A = U diag(s) V' det(U) det(V) V diag(p) U' with p[i] the
    product of all s but s[i]. False where LAPACK does not converge, or an entry is not finite."""
    stack, n, _ = a.shape
    real = a.dtype.type
    least = np.sqrt(np.finfo(a.dtype).eps)
    lu, pivots = np.empty((1, n, n), a.dtype), np.empty((1, n), np.int32)
    size = np.empty(1, a.dtype)
    for s in range(stack):
        lu[0] = a[s]
        lu_factor(lu, pivots)
        smallest, largest = real(np.inf), real(0)
        for i in range(n):
            smallest, largest = min(smallest, abs(lu[0, i, i])), max(largest, abs(lu[0, i, i]))
        if smallest > least * largest:
            lu_det(lu, pivots, size)
            lu_inverse(lu, pivots, out[s : s + 1])
            out[s] *= size[0]
        elif not adjugate_of_singular(a[s : s + 1], out[s], lu, pivots):
            return False
    return True


@compiled(counted=True)
def adjugate_of_singular(a, out, lu, pivots):
    """`adjugate` of one matrix, `a` (1, n, n), by its singular values."""
    _, n, _ = a.shape
    u, v, s = np.empty_like(a), np.empty_like(a), np.empty((1, n), a.dtype)
    if not singular_vectors(a, u, s, v):
        return False
    size, sign = np.empty(1, a.dtype), a.dtype.type(1)
    for basis in (u, v):
        lu[...] = basis
        lu_factor(lu, pivots)
        lu_det(lu, pivots, size)
        sign *= size[0]
    for k in range(n):
        product = sign
        for i in range(n):
            if i != k:
                product *= s[0, i]
        for i in range(n):
            v[0, i, k] *= product
    for i in range(n):
        for j in range(n):
            total = a.dtype.type(0)
            for k in range(n):
                total += v[0, i, k] * u[0, j, k]
            out[i, j] = total
    return True
