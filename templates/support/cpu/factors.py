"""Factorisations without pivoting: Cholesky, LU, QR; pseudoinverses by QR."""

# mypy: allow-untyped-defs, disable-error-code=call-arg

import numpy as np

from ..internals.arithmetic import epsilon
from ..internals.functions import compiled
from ..internals.memory import copy_entries, empty, zeros
from .cholesky import cholesky_factor
from .copies import copy_matrices
from .eigen import largest_row_sum
from .lapack import lapack_gelqf, lapack_orglq
from .triangular import triangular_inverse, triangular_solve_columns


@compiled()
def lower_factor(a, out):
    """out (stack, n, n) = the lower triangular L with L L' = A, zero above the diagonal; only the
    lower triangle of A is read. False where a matrix is not positive definite."""
    stack, n, _ = a.shape
    for s in range(stack):
        for i in range(n):
            for j in range(i + 1):
                out[s, i, j] = a[s, i, j]
    definite = cholesky_factor(out)
    for s in range(stack):
        for i in range(n):
            for j in range(i + 1, n):
                out[s, i, j] = 0
    return definite


@compiled()
def half_lower(a, out):
    """out (stack, n, n) = the lower triangle of A with its diagonal halved, zero above."""
    stack, n, _ = a.shape
    for s in range(stack):
        for i in range(n):
            for j in range(n):
                out[s, i, j] = a[s, i, j] if j < i else 0
            out[s, i, i] = a[s, i, i] / 2


@compiled()
def unpivoted_lu(a, lower, upper):
    """lower, upper (stack, n, n): A = L U with ones on the diagonal of L. False where a pivot is
    zero, or no larger than the rounding error of the terms that it is the sum of."""
    stack, n, _ = a.shape
    rounding = n * epsilon(a)
    for s in range(stack):
        for i in range(n):
            for j in range(n):
                lower[s, i, j] = i == j
                upper[s, i, j] = a[s, i, j]
            terms = abs(a[s, i, i])
            for k in range(i):
                multiplier = upper[s, i, k] / upper[s, k, k]
                lower[s, i, k] = multiplier
                upper[s, i, k] = 0
                for j in range(k + 1, n):
                    upper[s, i, j] -= multiplier * upper[s, k, j]
                terms += abs(multiplier * upper[s, k, i])
            if not abs(upper[s, i, i]) > rounding * terms:
                return False
    return True


@compiled(counted=True)
def thin_qr(a, q, r):
    """q (stack, p, k), r (stack, k, k): A = Q R with a positive diagonal of R. False where the
    columns of a matrix are linearly dependent up to rounding.

    LAPACK reads A as its transpose, and factors that as R' Q'. The diagonal of R does not show
    whether columns are dependent: its rounding errors grow with the condition of the columns
    before."""
    stack, p, k = a.shape
    if p < k:
        return False
    info = empty((1,), np.int32)
    factors = empty((k,), a.dtype)
    size = 64 * k + 1
    work = empty((size,), a.dtype)
    copy_entries(a, q)
    for s in range(stack):
        if k > 0:
            lapack_gelqf((k, p, q[s], k, factors, work, size, info))
        for i in range(k):
            for j in range(k):
                r[s, i, j] = q[s, i, j] if j >= i else 0
        if k > 0:
            lapack_orglq((k, p, k, q[s], k, factors, work, size, info))
        for i in range(k):
            if r[s, i, i] < 0:
                for j in range(i, k):
                    r[s, i, j] = -r[s, i, j]
                for j in range(p):
                    q[s, j, i] = -q[s, j, i]
    return has_full_rank(r)


@compiled(counted=True)
def has_full_rank(r):
    """Check that the columns of upper triangular matrices, `r` (stack, k, k), are linearly
    independent beyond rounding, whatever their lengths.

    Column i of inv(R) combines the columns to a vector at distance 1 from the span of those before
    i: they are dependent where a coefficient times its column's length reaches the inverse of the
    precision."""
    stack, k, _ = r.shape
    level = 10 * epsilon(r)
    for s in range(stack):
        lengths = zeros((k,), r.dtype)  # 1-norms: squares could overflow
        for j in range(k):
            for i in range(j, k):
                lengths[i] += abs(r[s, j, i])
        volume = r.dtype.type(1)
        for i in range(k):
            volume *= abs(r[s, i, i]) / lengths[i]
        # cheap sufficient condition: the smallest singular value of a matrix with columns of
        # length 1 is more than its determinant / sqrt(e)
        if volume > level * np.sqrt(np.e * k):
            continue
        inverse = empty((1, k, k), r.dtype)
        triangular_inverse(r[s : s + 1], inverse, False)
        sizes = zeros((k,), r.dtype)
        for j in range(k):
            for i in range(j, k):
                sizes[i] += lengths[j] * abs(inverse[0, j, i])
        for i in range(k):
            if not level * sizes[i] < 1:
                return False
    return True


@compiled(counted=True)
def full_rank_pinv(a, out):
    """out (stack, q, p) = inv(R) Q' for A = Q R; for A with more columns than rows, the transpose
    of that for A'. False where the condition number of A exceeds the inverse of the precision: also
    where columns are dependent to NumPy only since their lengths differ so much."""
    stack, p, q = a.shape
    long_side, short_side = max(p, q), min(p, q)
    tall = empty((stack, long_side, short_side), a.dtype)
    factor = empty((stack, long_side, short_side), a.dtype)
    r = empty((stack, short_side, short_side), a.dtype)
    inverse = empty((stack, short_side, long_side), a.dtype)
    copy_matrices(a, tall, p < q)
    if not thin_qr(tall, factor, r):
        return False
    copy_matrices(factor, inverse, True)
    triangular_solve_columns(r, inverse, False, False)
    copy_matrices(inverse, out, p < q)
    for s in range(stack):
        condition = largest_row_sum(a[s]) * largest_row_sum(out[s])
        if not 10 * epsilon(a) * condition < 1:
            return False
    return True
