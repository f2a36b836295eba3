"""Many small systems of equations side by side in memory: the last axis counts the matrices, and
loops along it are the innermost ones.

Cholesky's factor has the reciprocals of its diagonal in place of it; the factors of LU with partial
pivoting are the rows' own, L below the diagonal and U from there on.
"""

# mypy: allow-untyped-defs, disable-error-code=call-arg

import numpy as np

from ..internals.arithmetic import along_samples
from ..internals.functions import compiled, short_loop
from ..internals.memory import empty

COPIED_SAMPLES = 8
"""Samples that are copied together: their entries fill a cache line. Rows of a power of two entries
have the same places in the cache, and would push each other out."""


subtract_products = along_samples("subtract_products", lambda target, a, b: target - a * b)
multiply = along_samples("multiply", lambda target, a: target * a)
divide = along_samples("divide", lambda target, a: target / a)


@compiled()
def samples_last(first, out):
    """out (entries, samples) = the transpose of `first` (samples, entries)."""
    samples, entries = first.shape
    whole = samples // COPIED_SAMPLES * COPIED_SAMPLES
    for start in range(0, whole, COPIED_SAMPLES):
        for i in range(entries):
            short_loop(i)
            for s in range(COPIED_SAMPLES):
                out[i, start + s] = first[start + s, i]
    for i in range(entries):
        for s in range(whole, samples):
            short_loop(s)
            out[i, s] = first[s, i]


@compiled()
def samples_first(last, out):
    """out (samples, entries) = the transpose of `last` (entries, samples)."""
    entries, samples = last.shape
    whole = samples // COPIED_SAMPLES * COPIED_SAMPLES
    for start in range(0, whole, COPIED_SAMPLES):
        for i in range(entries):
            short_loop(i)
            for s in range(COPIED_SAMPLES):
                out[start + s, i] = last[i, start + s]
    for i in range(entries):
        for s in range(whole, samples):
            short_loop(s)
            out[s, i] = last[i, s]


@compiled()
def cholesky_factor_batch_last(lower):
    """Factor each matrix lower[:, :, s] of (n, n, stack) in place; entries above the diagonal stay.
    False where one is not positive definite."""
    n, _, stack = lower.shape
    for j in range(n):
        for k in range(j):
            subtract_products((lower, j, j, lower, j, k, lower, j, k))
        failed = 0
        for s in range(stack):
            failed += lower[j, j, s] <= 0
            lower[j, j, s] = 1 / np.sqrt(lower[j, j, s])
        if failed > 0:
            return False
        for i in range(j + 1, n):
            for k in range(j):
                subtract_products((lower, i, j, lower, i, k, lower, j, k))
            multiply((lower, i, j, lower, j, j))
    return True


@compiled()
def cholesky_solve_batch_last(lower, b):
    """Replace each column x of b[:, :, s], of (n, columns, stack), by inv(A) x."""
    n, columns = b.shape[:2]
    for i in range(n):
        for k in range(i):
            for c in range(columns):
                subtract_products((b, i, c, lower, i, k, b, k, c))
        for c in range(columns):
            multiply((b, i, c, lower, i, i))
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            for c in range(columns):
                subtract_products((b, i, c, lower, k, i, b, k, c))
        for c in range(columns):
            multiply((b, i, c, lower, i, i))


@compiled()
def cholesky_inverse_batch_last(lower, out):
    """out (n, n, stack) = the inverse of each factored matrix."""
    identities(out)
    cholesky_solve_batch_last(lower, out)


@compiled()
def identities(out):
    """Each out[:, :, s] = the identity."""
    n, _, stack = out.shape
    for i in range(n):
        for j in range(n):
            for s in range(stack):
                out[i, j, s] = i == j


@compiled()
def cholesky_det_batch_last(lower, out):
    """out (stack,) = the determinant of each factored matrix."""
    n, _, stack = lower.shape
    out[:] = 1
    for i in range(n):
        for s in range(stack):
            out[s] /= lower[i, i, s] * lower[i, i, s]


@compiled()
def cholesky_logdet_batch_last(lower, out):
    """out (stack,) = log of the determinant of each factored matrix."""
    n, _, stack = lower.shape
    out[:] = 0
    for i in range(n):
        for s in range(stack):
            out[s] -= 2 * np.log(lower[i, i, s])


@compiled(counted=True)
def lu_factor_batch_last(lu, pivots):
    """Factor each matrix lu[:, :, s] of (n, n, stack) in place, pivots (n, stack); a zero pivot
    stays and means det = 0."""
    n, _, stack = lu.shape
    largest = empty((stack,), lu.dtype)
    for k in range(n):
        for s in range(stack):
            pivots[k, s] = k
            largest[s] = abs(lu[k, k, s])
        for i in range(k + 1, n):
            for s in range(stack):
                size = abs(lu[i, k, s])
                better = size > largest[s]
                largest[s] = size if better else largest[s]
                pivots[k, s] = i if better else pivots[k, s]
        exchange_batch_last(pivots, lu, k)
        for i in range(k + 1, n):
            for s in range(stack):
                lu[i, k, s] /= lu.dtype.type(1) if largest[s] == 0 else lu[k, k, s]
            for j in range(k + 1, n):
                subtract_products((lu, i, j, lu, i, k, lu, k, j))


@compiled()
def exchange_batch_last(pivots, b, k):
    """Exchange row k of each b[:, :, s] for the row that pivots[k, s] names."""
    _, columns, stack = b.shape
    for s in range(stack):
        other = pivots[k, s]
        if other != k:
            for j in range(columns):
                b[k, j, s], b[other, j, s] = b[other, j, s], b[k, j, s]


@compiled()
def lu_invertible_batch_last(lu):
    """Return whether no factored matrix lu[:, :, s] of (n, n, stack) is singular."""
    n, _, stack = lu.shape
    for i in range(n):
        for s in range(stack):
            if lu[i, i, s] == 0:
                return False
    return True


@compiled()
def lu_solve_batch_last(lu, pivots, b, transposed):
    """Replace each column x of b[:, :, s], of (n, columns, stack), by inv(A) x, or by inv(A)' x."""
    n, columns = b.shape[:2]
    for k in range(0 if transposed else n):
        exchange_batch_last(pivots, b, k)
    for i in range(n):
        for k in range(i):
            row, column = (k, i) if transposed else (i, k)
            for c in range(columns):
                subtract_products((b, i, c, lu, row, column, b, k, c))
        for c in range(columns if transposed else 0):
            divide((b, i, c, lu, i, i))
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            row, column = (k, i) if transposed else (i, k)
            for c in range(columns):
                subtract_products((b, i, c, lu, row, column, b, k, c))
        for c in range(0 if transposed else columns):
            divide((b, i, c, lu, i, i))
    for k in range(n - 1 if transposed else -1, -1, -1):
        exchange_batch_last(pivots, b, k)


@compiled()
def lu_inverse_batch_last(lu, pivots, out):
    """out (n, n, stack) = the inverse of each factored matrix."""
    identities(out)
    lu_solve_batch_last(lu, pivots, out, False)


@compiled()
def lu_det_batch_last(lu, pivots, out):
    """out (stack,) = the determinant of each factored matrix."""
    n, _, stack = lu.shape
    out[:] = 1
    for i in range(n):
        for s in range(stack):
            out[s] *= lu[i, i, s] if pivots[i, s] == i else -lu[i, i, s]


@compiled()
def lu_logabsdet_batch_last(lu, pivots, out):
    """out (stack,) = log of the absolute value of the determinant."""
    n, _, stack = lu.shape
    out[:] = 0
    for i in range(n):
        for s in range(stack):
            out[s] += np.log(abs(lu[i, i, s]))


@compiled()
def lu_logdet_batch_last(lu, pivots, out):
    """out (stack,) = log of the determinant: -inf where it is zero, nan where it is negative."""
    n, _, stack = lu.shape
    lu_logabsdet_batch_last(lu, pivots, out)
    for s in range(stack):
        negative = False
        for i in range(n):
            negative ^= (lu[i, i, s] < 0) != (pivots[i, s] != i)
        if negative and out[s] > -np.inf:
            out[s] = np.nan
