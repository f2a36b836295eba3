"""Singular values and vectors, and what is made of them: polar factor, nuclear norm.

LAPACK sees a matrix transposed, so that its left vectors are our right ones.
"""

# mypy: allow-untyped-defs

import numpy as np

from ..internals.functions import compiled
from .base import NO
from .blas import gemm
from .eigen import all_finite, leading_sign
from .lapack import lapack_gesdd

THIN = np.uint8(ord("S"))


@compiled(counted=True)
def decomposed(job, a, u, s, vh, copy, work, integers):
    """Decompose a matrix: A = u diag(s) vh, descending. False where LAPACK does not converge."""
    p, q = a.shape
    k = len(s)
    for i in range(p):
        for j in range(q):
            copy[i, j] = a[i, j]
    info = np.empty(1, np.int32)
    size = len(work)
    lapack_gesdd((job, q, p, copy, q, s, vh, q, u, max(k, 1), work, size, integers, info))
    return info[0] == 0


@compiled(counted=True)
def singular_workspace(job, p, q, sample):
    """The array that LAPACK works in, for a matrix of this shape and the type of `sample`."""
    k = min(p, q)
    info = np.empty(1, np.int32)
    integers = np.empty(8 * k + 1, np.int32)
    empty = np.empty((1, 1), sample.dtype)
    numbers = np.empty(k + 1, sample.dtype)
    best = np.zeros(1, sample.dtype)
    last = (best, -1, integers, info)
    lapack_gesdd((job, q, p, empty, q, numbers, empty, q, empty, max(k, 1), *last))
    return np.empty(int(best[0]) + q + p, sample.dtype)


@compiled(counted=True)
def singular_triplets(a, u, s, vh):
    """u (stack, p, k), s (stack, k), vh (stack, k, q): A = U diag(s) V', descending, of each
    column of U the first of the largest entries positive. False where an entry is not
    finite, or LAPACK does not converge."""
    stack, p, q = a.shape
    k = min(p, q)
    if k == 0 or not all_finite(a):
        return k == 0
    copy = np.empty((p, q), a.dtype)
    work = singular_workspace(THIN, p, q, copy)
    integers = np.empty(8 * k, np.int32)
    for n in range(stack):
        if not decomposed(THIN, a[n], u[n], s[n], vh[n], copy, work, integers):
            return False
        for j in range(k):
            if leading_sign(u[n], j) < 0:
                for i in range(p):
                    u[n, i, j] = -u[n, i, j]
                for i in range(q):
                    vh[n, j, i] = -vh[n, j, i]
    return True


@compiled(counted=True)
def singular_vectors(a, u, s, v):
    """As `singular_triplets`, with v (stack, q, k) for the right vectors as columns."""
    stack, q, k = v.shape
    vh = np.empty((stack, k, q), a.dtype)
    found = singular_triplets(a, u, s, vh)
    for n in range(stack):
        for i in range(q):
            for j in range(k):
                v[n, i, j] = vh[n, j, i]
    return found


@compiled(counted=True)
def singular_values(a, s):
    """s (stack, k), descending. False where an entry is not finite, or LAPACK does not
    converge."""
    stack, p, q = a.shape
    k = min(p, q)
    if k == 0 or not all_finite(a):
        return k == 0
    copy = np.empty((p, q), a.dtype)
    none = np.empty((1, 1), a.dtype)
    work = singular_workspace(NO, p, q, copy)
    integers = np.empty(8 * k, np.int32)
    found = True
    for n in range(stack):
        found &= decomposed(NO, a[n], none, s[n], none, copy, work, integers)
    return found


@compiled(counted=True)
def nuclear_norm(a, out):
    """out (stack,) = the sum of the singular values. False where LAPACK does not converge."""
    stack, p, q = a.shape
    s = np.empty((stack, min(p, q)), a.dtype)
    found = singular_values(a, s)
    for n in range(stack):
        out[n] = 0
        for value in s[n]:
            out[n] += value
    return found


@compiled(counted=True)
def polar_factor(a, out):
    """out (stack, p, q) = U V' for A = U diag(s) V'. False where LAPACK does not converge."""
    stack, p, q = a.shape
    k = min(p, q)
    u = np.empty((stack, p, k), a.dtype)
    s = np.empty((stack, k), a.dtype)
    vh = np.empty((stack, k, q), a.dtype)
    found = singular_triplets(a, u, s, vh)
    one, zero = a.dtype.type(1), a.dtype.type(0)
    for n in range(stack):
        gemm(one, u[n], False, vh[n], False, zero, out[n])
    return found


@compiled(counted=True)
def solve_polar(a, c, out):
    """out (stack, p, q) = the Y with X W' Y + Y W' X = C, for X = `a` and its polar factor W.
    False where X is not of full rank.

    X = U diag(s) V' decouples the equation: s[i] + s[j] divides entry i, j of U' C V, and s what
    of C is orthogonal to U or to V.
    """
    stack, p, q = a.shape
    k = min(p, q)
    u = np.empty((stack, p, k), a.dtype)
    s = np.empty((stack, k), a.dtype)
    vh = np.empty((stack, k, q), a.dtype)
    if not singular_triplets(a, u, s, vh):
        return False
    one, zero = a.dtype.type(1), a.dtype.type(0)
    left = np.empty((k, q), a.dtype)
    right = np.empty((p, k), a.dtype)
    inner = np.empty((k, k), a.dtype)
    small = 10 * k * np.finfo(a.dtype).eps
    for n in range(stack):
        if k > 0 and not s[n, k - 1] > small * s[n, 0]:
            return False
        gemm(one, u[n], True, c[n], False, zero, left)
        gemm(one, left, False, vh[n], True, zero, inner)
        gemm(one, c[n], False, vh[n], True, zero, right)
        gemm(-one, u[n], False, inner, False, one, right)
        gemm(-one, inner, False, vh[n], False, one, left)
        for i in range(k):
            for j in range(p):
                right[j, i] /= s[n, i]
            for j in range(q):
                left[i, j] /= s[n, i]
            for j in range(k):
                inner[i, j] /= s[n, i] + s[n, j]
        gemm(one, inner, False, vh[n], False, one, left)
        gemm(one, u[n], False, left, False, zero, out[n])
        gemm(one, right, False, vh[n], False, one, out[n])
    return True
