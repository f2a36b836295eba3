"""Eigenvalues, ascending, and vectors of unit length with a fixed sign, by LAPACK."""

# mypy: allow-untyped-defs, disable-error-code=call-arg

import math

import numpy as np

from ..common.module import LEADING_RATIO
from ..internals.arithmetic import epsilon
from ..internals.functions import compiled
from ..internals.memory import copy_entries, empty, zeros
from .blas import NO, UPPER, VECTORS
from .lapack import lapack_gecon, lapack_geev, lapack_getrf, lapack_syevd

ONE_NORM = np.uint8(ord("1"))


@compiled(linked=True)
def all_finite(a):
    """Check that no entry is infinite or nan: for such matrices LAPACK may iterate forever."""
    is_finite = True
    for value in a.flat:
        is_finite &= abs(value) < np.inf
    return is_finite


@compiled(linked=True)
def leading_sign(rows, column):
    """Return the sign of the first of the largest entries in a column of a matrix. Entries that
    differ by rounding count as equally large, so that the sign does not depend on it."""
    largest = rows.dtype.type(0)
    for i in range(rows.shape[0]):
        largest = max(largest, abs(rows[i, column]))
    for i in range(rows.shape[0]):
        if abs(rows[i, column]) >= LEADING_RATIO * largest:
            return -1 if rows[i, column] < 0 else 1
    return 1


@compiled()
def sign_columns(vectors):
    """Multiply each column of a matrix by 1 or -1 so that the first of its largest entries is
    positive."""
    for j in range(vectors.shape[1]):
        if leading_sign(vectors, j) < 0:
            for i in range(vectors.shape[0]):
                vectors[i, j] = -vectors[i, j]


@compiled()
def transpose_square(a):
    """Transpose a square matrix in place."""
    for i in range(a.shape[0]):
        for j in range(i):
            a[i, j], a[j, i] = a[j, i], a[i, j]


@compiled()
def largest_row_sum(a):
    """Compute the largest sum of absolute values of a row of a matrix: its norm as a map of maximum
    norms."""
    largest = a.dtype.type(0)
    for i in range(a.shape[0]):
        total = a.dtype.type(0)
        for j in range(a.shape[1]):
            total += abs(a[i, j])
        largest = max(largest, total)
    return largest


@compiled(counted=True)
def decompose_symmetric(job, a, values, vectors):
    """Compute the eigenvalues of symmetric matrices, of which the lower triangle is read, and with
    job VECTORS their eigenvectors as rows. `vectors` (stack, n, n) is overwritten in any case.
    False where an entry is not finite, or LAPACK does not converge."""
    stack, n = values.shape
    if not all_finite(a):
        return False
    info = empty((1,), np.int32)
    size, count = 1 + 6 * n + 2 * n * n, 3 + 5 * n  # the least that syevd takes with vectors
    workspace = (empty((size,), a.dtype), size, empty((count,), np.int32), count, info)
    copy_entries(a, vectors)
    for s in range(stack if n > 0 else 0):
        lapack_syevd((job, UPPER, n, vectors[s], n, values[s], *workspace))
        if info[0] != 0:
            return False
    return True


@compiled(counted=True)
def symmetric_eigen(a, values, vectors):
    """values (stack, n), vectors (stack, n, n): A = V diag(values) V' for symmetric matrices. See
    `decompose_symmetric`."""
    if not decompose_symmetric(VECTORS, a, values, vectors):
        return False
    for s in range(len(vectors)):
        transpose_square(vectors[s])
        sign_columns(vectors[s])
    return True


@compiled(counted=True)
def symmetric_eigenvalues(a, values):
    """values (stack, n) of symmetric matrices. See `decompose_symmetric`."""
    return decompose_symmetric(NO, a, values, empty(a.shape, a.dtype))


@compiled()
def sort_ascending(values, places):
    """Sort `values` in place, by insertion; places[i] is the former position of values[i]."""
    for i in range(len(values)):
        places[i] = i
        for j in range(i, 0, -1):
            if not values[j] < values[j - 1]:
                break
            values[j], values[j - 1] = values[j - 1], values[j]
            places[j], places[j - 1] = places[j - 1], places[j]


@compiled()
def power_of_two_above(a):
    """Return a power of two that is at least as large as all entries of a matrix, but for the
    largest numbers of its type, and not much larger."""
    largest = a.dtype.type(0)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            largest = max(largest, abs(a[i, j]))
    limit = 1000 if a.itemsize == 8 else 100
    exponent = math.frexp(largest)[1]
    return math.ldexp(a.dtype.type(1), min(max(exponent, -limit), limit))


@compiled(counted=True)
def real_eigen(job, a, values, rows):
    """Compute the eigenvalues of a matrix, unsorted, and with job VECTORS its eigenvectors as rows.
    False where an eigenvalue is not real, or LAPACK does not converge.

    LAPACK reads the matrix as its transpose: its left eigenvectors are our right ones. It scales
    very large and small matrices, and OpenBLAS's does not scale their eigenvalues back.
    """
    n = len(values)
    info = zeros((1,), np.int32)
    imaginary = zeros((n,), a.dtype)
    copy = empty((n, n), a.dtype)
    none = empty((1, 1), a.dtype)
    size = 64 * n + 64
    work = empty((size,), a.dtype)
    scale = power_of_two_above(a)
    for i in range(n):
        for j in range(n):
            copy[i, j] = a[i, j] / scale
    if n > 0:
        order = len(rows)
        tail = (work, size, info)
        lapack_geev((job, NO, n, copy, n, values, imaginary, rows, order, none, 1, *tail))
    for i in range(n):
        values[i] *= scale
    for part in imaginary:
        if part != 0:
            return False
    return info[0] == 0


@compiled(counted=True)
def real_eigenvalues(a, values):
    """values (stack, n), ascending. False where a value is not real, or an entry not finite."""
    stack, n = values.shape
    if not all_finite(a):
        return False
    none = empty((1, 1), a.dtype)
    places = empty((n,), np.int64)
    for s in range(stack):
        if not real_eigen(NO, a[s], values[s], none):
            return False
        sort_ascending(values[s], places)
    return True


@compiled(counted=True)
def real_eigenvectors(a, values, vectors):
    """values (stack, n), ascending, vectors (stack, n, n): A V = V diag(values) with columns of
    unit length whose first largest entry is positive. False where a value is not real, V is
    singular up to rounding, or an entry not finite."""
    stack, n = values.shape
    if not all_finite(a):
        return False
    rows = empty((n, n), a.dtype)
    places = empty((n,), np.int64)
    for s in range(stack):
        if not real_eigen(VECTORS, a[s], values[s], rows):
            return False
        sort_ascending(values[s], places)
        for j in range(n):
            for i in range(n):
                vectors[s, i, j] = rows[places[j], i]
        sign_columns(vectors[s])
        if not independent_columns(vectors[s]):
            return False
    return True


@compiled(counted=True)
def independent_columns(a):
    """Check by an estimate of the condition number that the columns of a square matrix are linearly
    independent beyond rounding."""
    n = len(a)
    factored = empty((n, n), a.dtype)
    info = empty((1,), np.int32)
    pivots = empty((n,), np.int32)
    work = empty((4 * n,), a.dtype)
    condition = empty((1,), a.dtype)
    condition[0] = 1
    length = largest_row_sum(a)
    copy_entries(a, factored)
    if n > 0:
        lapack_getrf((n, n, factored, n, pivots, info))
        lapack_gecon((ONE_NORM, n, factored, n, length, condition, work, pivots, info))
    return condition[0] > 10 * n * epsilon(a)
