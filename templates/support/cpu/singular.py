"""Singular values and vectors; the polar factor and the nuclear norm.

LAPACK reads a matrix as its transpose: its left vectors are our right ones.
"""

# mypy: allow-untyped-defs, disable-error-code=call-arg

import numpy as np

from ..internals.arithmetic import epsilon
from ..internals.functions import compiled
from ..internals.memory import copy_entries, empty, zeros
from .blas import NO, gemm
from .copies import copy_matrices
from .eigen import all_finite, leading_sign
from .lapack import lapack_gesdd

THIN = np.uint8(ord("S"))


@compiled(counted=True)
def decompose(job, a, u, s, vh, copy, work, integers):
    """Decompose a matrix: A = u diag(s) vh, s descending; with job NO only s is computed. `copy`
    (p, q), `work` and `integers` are work arrays. False where LAPACK does not converge."""
    p, q = a.shape
    k = len(s)
    copy_entries(a, copy)
    info = empty((1,), np.int32)
    size = len(work)
    lapack_gesdd((job, q, p, copy, q, s, vh, q, u, max(k, 1), work, size, integers, info))
    return info[0] == 0


@compiled(counted=True)
def singular_workspace(job, p, q, sample):
    """Allocate LAPACK's work array for a matrix (p, q) of the type of `sample`."""
    k = min(p, q)
    info = empty((1,), np.int32)
    integers = empty((8 * k + 1,), np.int32)
    none = empty((1, 1), sample.dtype)
    numbers = empty((k + 1,), sample.dtype)
    optimal_size = zeros((1,), sample.dtype)
    query = (optimal_size, -1, integers, info)
    lapack_gesdd((job, q, p, none, q, numbers, none, q, none, max(k, 1), *query))
    return empty((int(optimal_size[0]) + q + p,), sample.dtype)


@compiled(counted=True)
def singular_triplets(a, u, s, vh):
    """u (stack, p, k), s (stack, k), vh (stack, k, q): A = U diag(s) V', s descending; in each
    column of U the first of the largest entries is positive. False where an entry is not finite, or
    LAPACK does not converge."""
    stack, p, q = a.shape
    k = min(p, q)
    if k == 0 or not all_finite(a):
        return k == 0  # without singular values there is nothing to compute
    copy = empty((p, q), a.dtype)
    work = singular_workspace(THIN, p, q, copy)
    integers = empty((8 * k,), np.int32)
    for n in range(stack):
        if not decompose(THIN, a[n], u[n], s[n], vh[n], copy, work, integers):
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
    """`singular_triplets` with the right vectors as columns of v (stack, q, k)."""
    stack, q, k = v.shape
    vh = empty((stack, k, q), a.dtype)
    converged = singular_triplets(a, u, s, vh)
    copy_matrices(vh, v, True)
    return converged


@compiled(counted=True)
def singular_values(a, s):
    """s (stack, k), descending. False where an entry is not finite, or LAPACK does not
    converge."""
    stack, p, q = a.shape
    k = min(p, q)
    if k == 0 or not all_finite(a):
        return k == 0
    copy = empty((p, q), a.dtype)
    none = empty((1, 1), a.dtype)
    work = singular_workspace(NO, p, q, copy)
    integers = empty((8 * k,), np.int32)
    converged = True
    for n in range(stack):
        converged &= decompose(NO, a[n], none, s[n], none, copy, work, integers)
    return converged


@compiled(counted=True)
def nuclear_norm(a, out):
    """out (stack,) = the sum of the singular values. False where LAPACK does not converge."""
    stack, p, q = a.shape
    s = empty((stack, min(p, q)), a.dtype)
    converged = singular_values(a, s)
    for n in range(stack):
        out[n] = 0
        for value in s[n]:
            out[n] += value
    return converged


@compiled(counted=True)
def polar_factor(a, out):
    """out (stack, p, q) = U V' for A = U diag(s) V'. False where LAPACK does not converge."""
    stack, p, q = a.shape
    k = min(p, q)
    u = empty((stack, p, k), a.dtype)
    s = empty((stack, k), a.dtype)
    vh = empty((stack, k, q), a.dtype)
    converged = singular_triplets(a, u, s, vh)
    for n in range(stack):
        gemm(1.0, u[n], False, vh[n], False, 0.0, out[n])
    return converged


@compiled(counted=True)
def solve_polar(a, c, out):
    """out (stack, p, q) = the Y with X W' Y + Y W' X = C, for X = `a` and its polar factor W. False
    where X is not of full rank.

    X = U diag(s) V' decouples the equation: entry i, j of U' C V is divided by s[i] + s[j], and the
    parts of C that are orthogonal to U or to V by s.
    """
    stack, p, q = a.shape
    k = min(p, q)
    u = empty((stack, p, k), a.dtype)
    s = empty((stack, k), a.dtype)
    vh = empty((stack, k, q), a.dtype)
    if not singular_triplets(a, u, s, vh):
        return False
    rows = empty((k, q), a.dtype)
    columns = empty((p, k), a.dtype)
    inner = empty((k, k), a.dtype)
    rounding = 10 * k * epsilon(a)
    for n in range(stack):
        if k > 0 and not s[n, k - 1] > rounding * s[n, 0]:
            return False
        gemm(1.0, u[n], True, c[n], False, 0.0, rows)
        gemm(1.0, rows, False, vh[n], True, 0.0, inner)
        gemm(1.0, c[n], False, vh[n], True, 0.0, columns)
        gemm(-1.0, u[n], False, inner, False, 1.0, columns)
        gemm(-1.0, inner, False, vh[n], False, 1.0, rows)
        for i in range(k):
            for j in range(p):
                columns[j, i] /= s[n, i]
            for j in range(q):
                rows[i, j] /= s[n, i]
            for j in range(k):
                inner[i, j] /= s[n, i] + s[n, j]
        gemm(1.0, inner, False, vh[n], False, 1.0, rows)
        gemm(1.0, u[n], False, rows, False, 0.0, out[n])
        gemm(1.0, columns, False, vh[n], False, 1.0, out[n])
    return True
