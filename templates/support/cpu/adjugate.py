"""The adjugate of a square matrix and its derivative: by LU factors, or where it is singular by
singular values."""

# mypy: allow-untyped-defs

import numpy as np

from ..internals.functions import compiled
from .blas import gemm
from .lu import lu_det, lu_factor, lu_inverse
from .singular import singular_vectors


@compiled(counted=True)
def adjugate(a, out):
    """out (stack, n, n) = the adjugate of each matrix of `a`: det(A) inv(A), or nearly so where A
    is singular up to half the digits, for A = U diag(s) V' det(U) det(V) V diag(p) U' with p[i] the
    product of all s but s[i]. False where LAPACK does not converge, or an entry is not finite."""
    least = np.sqrt(np.finfo(a.dtype).eps)
    for s in range(len(a)):
        size = inverted(a[s : s + 1], out[s : s + 1], least)
        if size != 0:
            for i in range(a.shape[1]):
                for j in range(a.shape[2]):
                    out[s, i, j] *= size
        elif not adjugate_of_singular(a[s : s + 1], out[s]):
            return False
    return True


@compiled(counted=True, linked=True)
def inverted(a, out, least):
    """The determinant of one matrix, `a` (1, n, n), and in `out` its inverse; 0 where a pivot is no
    larger than `least` times the largest."""
    _, n, _ = a.shape
    lu, pivots, size = a.copy(), np.empty((1, n), np.int32), np.empty(1, a.dtype)
    lu_factor(lu, pivots)
    smallest, largest = a.dtype.type(np.inf), a.dtype.type(0)
    for i in range(n):
        smallest, largest = min(smallest, abs(lu[0, i, i])), max(largest, abs(lu[0, i, i]))
    if not smallest > least * largest:
        return a.dtype.type(0)
    lu_det(lu, pivots, size)
    lu_inverse(lu, pivots, out)
    return size[0]


@compiled(counted=True)
def adjugate_of_singular(a, out):
    """`adjugate` of one matrix, `a` (1, n, n), by its singular values."""
    _, n, _ = a.shape
    u, v, s = np.empty_like(a), np.empty_like(a), np.empty((1, n), a.dtype)
    if not singular_vectors(a, u, s, v):
        return False
    sign = orientation(u) * orientation(v)
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
def orientation(basis):
    """The determinant of an orthogonal matrix, `basis` (1, n, n)."""
    _, n, _ = basis.shape
    lu, pivots, size = basis.copy(), np.empty((1, n), np.int32), np.empty(1, basis.dtype)
    lu_factor(lu, pivots)
    lu_det(lu, pivots, size)
    return size[0]


@compiled(counted=True)
def adjugate_derivative(a, change, out):
    """out (stack, n, n) = the derivative of the adjugate of each matrix of `a` along that of
    `change`: det(A) (tr(inv(A) dA) inv(A) - inv(A) dA inv(A)), or nearly so where A is singular up
    to a quarter of the digits, as what is lost of an inverse is lost twice. False as `adjugate`."""
    stack, n, _ = a.shape
    least = np.sqrt(np.sqrt(np.finfo(a.dtype).eps))
    inverse, moved = np.empty((1, n, n), a.dtype), np.empty((n, n), a.dtype)
    for s in range(stack):
        size = inverted(a[s : s + 1], inverse, least)
        if size != 0:
            gemm(1.0, inverse[0], False, change[s], False, 0.0, moved)
            total = a.dtype.type(0)
            for i in range(n):
                total += moved[i, i]
            gemm(-size, moved, False, inverse[0], False, 0.0, out[s])
            for i in range(n):
                for j in range(n):
                    out[s, i, j] += size * total * inverse[0, i, j]
        else:
            u, v, others = np.empty_like(inverse), np.empty_like(inverse), np.empty_like(moved)
            if not products_but_two(a[s : s + 1], u, v, others):
                return False
            gemm(1.0, u[0], True, change[s], False, 0.0, moved)
            gemm(1.0, moved, False, v[0], False, 0.0, inverse[0])
            derivative_of_singular(inverse[0], u[0], v[0], others, moved, out[s])
    return True


@compiled(counted=True)
def adjugate_jacobian(a, out):
    """out (stack, n, n, n, n) = of each matrix of `a` the derivative of the adjugate by each entry,
    whose indices come last; see `adjugate_derivative`."""
    stack, n, _ = a.shape
    least = np.sqrt(np.sqrt(np.finfo(a.dtype).eps))
    inverse, moved = np.empty((1, n, n), a.dtype), np.empty((n, n), a.dtype)
    for s in range(stack):
        size = inverted(a[s : s + 1], inverse, least)
        if size != 0:
            for i in range(n):
                for j in range(n):
                    for k in range(n):
                        one, two = size * inverse[0, i, j], size * inverse[0, i, k]
                        for m in range(n):
                            out[s, i, j, k, m] = one * inverse[0, m, k] - two * inverse[0, m, j]
        else:
            u, v, others = np.empty_like(inverse), np.empty_like(inverse), np.empty_like(moved)
            found = np.empty_like(moved)
            if not products_but_two(a[s : s + 1], u, v, others):
                return False
            for k in range(n):
                for m in range(n):
                    for p in range(n):
                        for q in range(n):
                            inverse[0, p, q] = u[0, k, p] * v[0, m, q]
                    derivative_of_singular(inverse[0], u[0], v[0], others, moved, found)
                    for p in range(n):
                        for q in range(n):
                            out[s, p, q, k, m] = found[p, q]
    return True


@compiled(counted=True)
def adjugate_factors(a, size, inverse, others, u, v):
    """size (stack,), inverse (stack, n, n) = det(A) and inv(A), or where A is singular as for
    `adjugate_derivative` others, u, v (stack, n, n) = `products_but_two`; zero is what is not
    computed. False as `adjugate`."""
    least = np.sqrt(np.sqrt(np.finfo(a.dtype).eps))
    others[:], u[:], v[:] = 0, 0, 0
    for s in range(len(a)):
        size[s] = inverted(a[s : s + 1], inverse[s : s + 1], least)
        if size[s] == 0:
            inverse[s] = 0
            if not products_but_two(a[s : s + 1], u[s : s + 1], v[s : s + 1], others[s]):
                return False
    return True


@compiled(counted=True)
def products_but_two(a, u, v, others):
    """For one matrix, `a` (1, n, n) = U diag(s) V': others[p, q] = the product of all s but s[p]
    and s[q], times det(U) det(V), and 0 for p = q. False as `adjugate`."""
    _, n, _ = a.shape
    s = np.empty((1, n), a.dtype)
    if not singular_vectors(a, u, s, v):
        return False
    sign = orientation(u) * orientation(v)
    for p in range(n):
        for q in range(n):
            product = sign if p != q else a.dtype.type(0)
            for i in range(n):
                if i != p and i != q:
                    product *= s[0, i]
            others[p, q] = product
    return True


@compiled(counted=True)
def derivative_of_singular(inner, u, v, others, moved, out):
    """out (n, n) = V D U', where D is made of `inner` = U' dA V: D[p, q] is
    -others[p, q] inner[p, q], and D[p, p] the sum of all others[p, q] inner[q, q]. `inner` and
    `moved` are overwritten."""
    n = len(inner)
    for p in range(n):
        moved[0, p] = 0
        for q in range(n):
            moved[0, p] += others[p, q] * inner[q, q]
    for p in range(n):
        for q in range(n):
            inner[p, q] *= -others[p, q]
        inner[p, p] = moved[0, p]
    gemm(1.0, v, False, inner, False, 0.0, moved)
    gemm(1.0, moved, False, u, True, 0.0, out)
