"""The adjugate of a square matrix and its derivative: by LU factors, for a nearly singular matrix
by its singular value decomposition."""

# mypy: allow-untyped-defs

import numpy as np

from ..internals.arithmetic import epsilon
from ..internals.functions import compiled
from ..internals.memory import empty
from .blas import gemm
from .lu import lu_det, lu_factor, lu_inverse
from .singular import singular_vectors


@compiled(counted=True)
def adjugate(a, out):
    """out (stack, n, n) = the adjugate of each matrix of `a`. False where LAPACK does not converge,
    or an entry is not finite.

    The adjugate is det(A) inv(A). Where that would lose half of the digits, with A = U diag(s) V':
    det(U) det(V) V diag(p) U', where p[i] is the product of all s but s[i]."""
    min_pivot_ratio = np.sqrt(epsilon(a))
    for s in range(len(a)):
        det = invert(a[s : s + 1], out[s : s + 1], min_pivot_ratio)
        if det != 0:
            for i in range(a.shape[1]):
                for j in range(a.shape[2]):
                    out[s, i, j] *= det
        elif not adjugate_by_svd(a[s : s + 1], out[s]):
            return False
    return True


@compiled(counted=True, linked=True)
def invert(a, out, min_pivot_ratio):
    """Put the inverse of one matrix, `a` (1, n, n), into `out` and return its determinant; return 0
    if its smallest pivot, relative to the largest, is at most `min_pivot_ratio`."""
    _, n, _ = a.shape
    lu, pivots, det = a.copy(), empty((1, n), np.int32), empty((1,), a.dtype)
    lu_factor(lu, pivots)
    smallest, largest = a.dtype.type(np.inf), a.dtype.type(0)
    for i in range(n):
        smallest, largest = min(smallest, abs(lu[0, i, i])), max(largest, abs(lu[0, i, i]))
    if not smallest > min_pivot_ratio * largest:
        return a.dtype.type(0)
    lu_det(lu, pivots, det)
    lu_inverse(lu, pivots, out)
    return det[0]


@compiled(counted=True)
def adjugate_by_svd(a, out):
    """`adjugate` of one matrix, `a` (1, n, n), by its singular value decomposition."""
    _, n, _ = a.shape
    u, v, s = empty(a.shape, a.dtype), empty(a.shape, a.dtype), empty((1, n), a.dtype)
    if not singular_vectors(a, u, s, v):
        return False
    sign = orthogonal_det(u) * orthogonal_det(v)
    for k in range(n):
        product = sign
        for i in range(n):
            if i != k:
                product *= s[0, i]
        for i in range(n):
            v[0, i, k] *= product
    gemm(1.0, v[0], False, u[0], True, 0.0, out)
    return True


@compiled(counted=True)
def orthogonal_det(basis):
    """Compute the determinant of an orthogonal matrix, `basis` (1, n, n): 1 or -1."""
    _, n, _ = basis.shape
    lu, pivots, size = basis.copy(), empty((1, n), np.int32), empty((1,), basis.dtype)
    lu_factor(lu, pivots)
    lu_det(lu, pivots, size)
    return size[0]


@compiled(counted=True)
def adjugate_derivative(a, tangent, out):
    """out (stack, n, n) = the derivative of the adjugate at each matrix of `a` along `tangent`:
    det(A) (tr(inv(A) dA) inv(A) - inv(A) dA inv(A)). False as `adjugate`.

    The formula uses the inverse twice and loses its digits twice: beyond a quarter of the digits,
    the singular value decomposition takes its place."""
    stack, n, _ = a.shape
    min_pivot_ratio = np.sqrt(np.sqrt(epsilon(a)))
    inverse, product = empty((1, n, n), a.dtype), empty((n, n), a.dtype)
    for s in range(stack):
        det = invert(a[s : s + 1], inverse, min_pivot_ratio)
        if det != 0:
            gemm(1.0, inverse[0], False, tangent[s], False, 0.0, product)
            total = a.dtype.type(0)
            for i in range(n):
                total += product[i, i]
            gemm(-det, product, False, inverse[0], False, 0.0, out[s])
            for i in range(n):
                for j in range(n):
                    out[s, i, j] += det * total * inverse[0, i, j]
        else:
            u, v = empty((1, n, n), a.dtype), empty((1, n, n), a.dtype)
            cofactors = empty((n, n), a.dtype)
            if not pair_products(a[s : s + 1], u, v, cofactors):
                return False
            gemm(1.0, u[0], True, tangent[s], False, 0.0, product)
            gemm(1.0, product, False, v[0], False, 0.0, inverse[0])
            derivative_by_svd(inverse[0], u[0], v[0], cofactors, product, out[s])
    return True


@compiled(counted=True)
def adjugate_jacobian(a, out):
    """out (stack, n, n, n, n) = the derivatives of the adjugate of each matrix of `a` by each of
    its entries, whose indices come last. See `adjugate_derivative`."""
    stack, n, _ = a.shape
    min_pivot_ratio = np.sqrt(np.sqrt(epsilon(a)))
    inverse, work = empty((1, n, n), a.dtype), empty((n, n), a.dtype)
    for s in range(stack):
        det = invert(a[s : s + 1], inverse, min_pivot_ratio)
        if det != 0:
            for i in range(n):
                for j in range(n):
                    for k in range(n):
                        inverse_ij, inverse_ik = det * inverse[0, i, j], det * inverse[0, i, k]
                        for m in range(n):
                            out[s, i, j, k, m] = (
                                inverse_ij * inverse[0, m, k] - inverse_ik * inverse[0, m, j]
                            )
        else:
            u, v = empty((1, n, n), a.dtype), empty((1, n, n), a.dtype)
            cofactors, entry_derivative = empty((n, n), a.dtype), empty((n, n), a.dtype)
            if not pair_products(a[s : s + 1], u, v, cofactors):
                return False
            for k in range(n):
                for m in range(n):
                    for p in range(n):
                        for q in range(n):
                            inverse[0, p, q] = u[0, k, p] * v[0, m, q]
                    derivative_by_svd(inverse[0], u[0], v[0], cofactors, work, entry_derivative)
                    for p in range(n):
                        for q in range(n):
                            out[s, p, q, k, m] = entry_derivative[p, q]
    return True


@compiled(counted=True)
def adjugate_factors(a, det, inverse, cofactors, u, v):
    """Compute the factors of the adjugate's derivative: det (stack,), inverse (stack, n, n), or for
    a nearly singular matrix cofactors, u, v (stack, n, n) of `pair_products`. The others are zero.
    False as `adjugate`."""
    min_pivot_ratio = np.sqrt(np.sqrt(epsilon(a)))
    cofactors[:], u[:], v[:] = 0, 0, 0
    for s in range(len(a)):
        det[s] = invert(a[s : s + 1], inverse[s : s + 1], min_pivot_ratio)
        if det[s] == 0:
            inverse[s] = 0
            if not pair_products(a[s : s + 1], u[s : s + 1], v[s : s + 1], cofactors[s]):
                return False
    return True


@compiled(counted=True)
def pair_products(a, u, v, cofactors):
    """Decompose one matrix `a` (1, n, n) = U diag(s) V': cofactors[p, q] = det(U) det(V) times the
    product of all s but s[p] and s[q]; 0 for p = q. False as `adjugate`."""
    _, n, _ = a.shape
    s = empty((1, n), a.dtype)
    if not singular_vectors(a, u, s, v):
        return False
    sign = orthogonal_det(u) * orthogonal_det(v)
    for p in range(n):
        for q in range(n):
            product = sign if p != q else a.dtype.type(0)
            for i in range(n):
                if i != p and i != q:
                    product *= s[0, i]
            cofactors[p, q] = product
    return True


@compiled(counted=True)
def derivative_by_svd(inner, u, v, cofactors, work, out):
    """out (n, n) = V D U' with D[p, q] = -cofactors[p, q] inner[p, q] and D[p, p] = the sum over q
    of cofactors[p, q] inner[q, q], for inner = U' dA V. `inner` and `work` are overwritten."""
    n = len(inner)
    for p in range(n):
        work[0, p] = 0
        for q in range(n):
            work[0, p] += cofactors[p, q] * inner[q, q]
    for p in range(n):
        for q in range(n):
            inner[p, q] *= -cofactors[p, q]
        inner[p, p] = work[0, p]
    gemm(1.0, v, False, inner, False, 0.0, work)
    gemm(1.0, work, False, u, True, 0.0, out)
