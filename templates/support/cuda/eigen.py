"""Eigenvalues, ascending, and eigenvectors of unit length with a fixed sign.

Small symmetric matrices are shifted to positive definite ones, whose eigenvalues are the singular
values: one iteration serves both. Large ones are left to cuSOLVER. Other matrices use a Schur form.
"""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import device, kernel
from .blas import product
from .copies import copied
from .elementary import real_maximum
from .libraries import by_library, fail
from .lu import lu_factor, lu_inverse
from .norms import column_sizes, leading_sign, precision_of
from .singular import array_or_placeholder, singular_by_jacobi
from .spectral import eigen_by_library
from .sylvester import schur_of


@kernel("real[:, :, ::1], real[:, :, ::1], real[::1]")
def shift_symmetric(a, shifted, shifts):
    """shifted = A + c I for symmetric matrices, of which the lower triangle is read, a thread for
    each; shifts = c, such that no eigenvalue is smaller than a third of the largest. All nan where
    an entry of A is not finite."""
    stack, n, _ = a.shape
    for s in range(cuda.grid(1), stack, cuda.gridsize(1)):
        norm = a.dtype.type(0)
        for i in range(n):
            total = a.dtype.type(0)
            for j in range(n):
                zero_or_nan = a[s, i, j] - a[s, i, j]  # nan for an infinite entry
                shifted[s, i, j] = a[s, max(i, j), min(i, j)] + zero_or_nan
                total += abs(shifted[s, i, j])
            norm = real_maximum(total, norm)
        shifts[s] = norm + norm
        for i in range(n):
            shifted[s, i, i] += norm + norm


@kernel("real[:, ::1], real[:, :, ::1], real[::1], real[:, ::1], real[:, :, ::1], int64")
def shift_back(shifted, u, shifts, values, vectors, with_vectors):
    """Convert eigenvalues, descending, and vectors of matrices from `shift_symmetric` to those of
    the original matrices, ascending: values (stack, n) and, if `with_vectors`, vectors (stack, n,
    n)."""
    stack, n = values.shape
    for task in range(cuda.grid(1), stack * n, cuda.gridsize(1)):
        s, j = task // n, task % n
        values[s, n - 1 - j] = shifted[s, j] - shifts[s]
        for i in range(n if with_vectors else 0):
            vectors[s, i, n - 1 - j] = u[s, i, j]


def symmetric_by_jacobi(run, a, values, vectors, failure):
    """`symmetric_eigen`, from the singular values of a positive definite matrix."""
    stack, n = values.shape
    with_vectors = int(vectors is not None)
    shifted, shifts, sizes = run.empty(a.shape), run.empty((stack,)), run.empty((stack, n))
    u, v = (run.empty(a.shape) if with_vectors else None for _ in range(2))
    run.launch(shift_symmetric, stack, a, shifted, shifts)
    singular_by_jacobi(run, shifted, u, sizes, v, failure)
    u, vectors = array_or_placeholder(run, u), array_or_placeholder(run, vectors)
    run.launch(shift_back, stack * n, sizes, u, shifts, values, vectors, with_vectors)


def symmetric_eigen(run, a, values, vectors, failure):
    """values (stack, n), vectors (stack, n, n): A = V diag(values) V' for symmetric matrices, of
    which the lower triangle is read; only values where `vectors` is None. Fails where an entry is
    not finite, or the iteration does not converge."""
    library = by_library(run, "an eigenvalue decomposition", values.shape[1])
    (eigen_by_library if library else symmetric_by_jacobi)(run, a, values, vectors, failure)


def symmetric_eigenvalues(run, a, values, failure):
    """values (stack, n) of symmetric matrices; see `symmetric_eigen`."""
    symmetric_eigen(run, a, values, None, failure)


# Matrices that are not symmetric


@device
def eigenvector(a, k, x, min_gap):
    """x = an eigenvector of an upper triangular matrix for its diagonal entry k, by substitution,
    scaled so that no entry exceeds 1; differences of eigenvalues are at least `min_gap`."""
    for i in range(x.shape[0]):
        x[i] = 1.0 if i == k else 0.0
    for step in range(k):
        i = k - 1 - step
        total = 0j
        for m in range(i + 1, k + 1):
            total += a[i, m] * x[m]
        gap = a[i, i] - a[k, k]
        if abs(gap) < min_gap:
            gap = min_gap + 0j
        x[i] = -total / gap
        size = abs(x[i])
        if size > 1:
            for m in range(i, k + 1):
                x[m] /= size


@kernel("complex128[:, :, ::1], complex128[:, :, ::1], float64")
def triangular_eigenvectors(form, columns, precision):
    """columns (stack, n, n) = the eigenvectors of upper triangular matrices, each by a thread."""
    stack, n, _ = form.shape
    for task in range(cuda.grid(1), stack * n, cuda.gridsize(1)):
        s, k = task // n, task % n
        min_gap = precision * abs(form[s, k, k])
        eigenvector(form[s], k, columns[s, :, k], min_gap if min_gap > 1e-290 else 1e-290)


@device
def diagonal_place(form, row):
    """The position of a diagonal entry in the ascending order of real parts."""
    value = form[row, row].real
    rank = 0
    for i in range(form.shape[0]):
        neighbour = form[i, i].real
        if neighbour < value or (neighbour == value and i < row):
            rank += 1
    return rank


@kernel(
    "complex128[:, :, ::1], complex128[:, :, ::1], real[:, ::1], real[:, :, ::1], float64, "
    "int32[::1], int64"
)
def real_pairs(form, columns, values, vectors, precision, failures, failure):
    """Sort the eigenvalues on the diagonals of `form` into values (stack, n), and the vectors in
    `columns`, normalised, into vectors (stack, n, n). Fails where a vector is no multiple of a real
    one, up to rounding: then its eigenvalue is not real either."""
    stack, n = values.shape
    for task in range(cuda.grid(1), stack * n, cuda.gridsize(1)):
        s, j = task // n, task % n
        place = diagonal_place(form[s], j)
        values[s, place] = form[s, j, j].real
        largest, scale = 0.0, 1.0 + 0j
        for i in range(n):
            size = abs(columns[s, i, j])
            if size > largest:
                largest, scale = size, columns[s, i, j]
        total, imaginary = 0.0, 0.0
        for i in range(n):
            entry = columns[s, i, j] / scale
            total += entry.real * entry.real
            imaginary = real_maximum(abs(entry.imag), imaginary)
            vectors[s, i, place] = entry.real
        if not imaginary <= precision:
            failures[failure] = 1
        length = math.sqrt(total) * leading_sign(vectors[s, :, place])
        for i in range(n):
            vectors[s, i, place] /= length


def real_eigen(run, a, values, vectors, failure):
    """values (stack, n), ascending, and vectors (stack, n, n) of unit length. It fails where a
    value is not real, or an entry not finite."""
    stack, n = values.shape
    form, basis = schur_of(run, a, failure)
    inner = run.empty(a.shape, np.complex128)
    run.launch(triangular_eigenvectors, stack * n, form, inner, precision_of(np.float64))
    columns = product(run, basis, False, inner, False)
    tolerance = np.sqrt(precision_of(values.dtype))
    outputs = values, vectors, tolerance, run.failures, failure
    run.launch(real_pairs, stack * n, form, columns, *outputs)


def real_eigenvalues(run, a, values, failure):
    """values (stack, n), ascending. It fails where one is not real, or an entry not finite."""
    real_eigen(run, a, values, run.empty(a.shape), failure)


def real_eigenvectors(run, a, values, vectors, failure):
    """values (stack, n), ascending, vectors (stack, n, n): A V = V diag(values), the columns of V
    of unit length, of each the first of the largest entries positive. It fails where a value is
    not real, V is singular up to rounding, or an entry not finite."""
    stack, n = values.shape
    real_eigen(run, a, values, vectors, failure)
    factored, inverse = copied(run, vectors), run.empty(a.shape)
    pivots = run.empty((stack, n), np.int32)
    lu_factor(run, factored, pivots)
    lu_inverse(run, factored, pivots, inverse)
    conditions = column_sizes(run, vectors, inverse).prod(axis=0)
    if not (10 * n * precision_of(vectors.dtype) * conditions < 1).all():
        fail(run, failure)
