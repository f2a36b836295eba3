"""Eigenvalues, ascending, and vectors of unit length with a fixed sign.

Symmetric matrices by Jacobi's method (Golub and Van Loan, Matrix Computations, 8.5), large ones by
cuSOLVER; others from a real Schur form.
"""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import THREADS, device, kernel, power_of_two
from .blas import gemm
from .blocks import SMALL, STEP, blocks_for, entries
from .copies import copy_stack
from .jacobi import (
    SWEEPS,
    column_sign,
    precision_of,
    rotation_tangent,
    round_pair,
)
from .libraries import has_library
from .lu import lu_factor, lu_inverse
from .norms import largest_row, largest_size, row_sizes
from .quasi import coupled
from .spectral import eigen_by_library
from .sylvester import schur


@device
def jacobi_angles(matrix, cosines, sines, size, turn, small):
    """The rotations of a round that make its pairs' entries zero; whether one of these is
    larger than `small`."""
    one = matrix.dtype.type(1)
    half = (size + 1) // 2
    found = 0
    for pair in range(cuda.threadIdx.x, half, cuda.blockDim.x):
        low, high = round_pair(turn, pair, 2 * half)
        cosines[pair] = one
        sines[pair] = 0
        if high < size and matrix[low, high] != 0:
            value = matrix[low, high]
            tangent = rotation_tangent(matrix[high, high] - matrix[low, low], value + value)
            cosine = one / math.sqrt(one + tangent * tangent)
            cosines[pair] = cosine
            sines[pair] = tangent * cosine
            if abs(value) > small:
                found = 1
    return found


@device
def jacobi_diagonal(matrix, low, high, cosine, sine):
    """Rotate the block of a pair with itself, whose other entries become zero."""
    shift = sine / cosine * matrix[low, high]
    matrix[low, low] -= shift
    matrix[high, high] += shift
    matrix[low, high] = 0
    matrix[high, low] = 0


@device
def jacobi_block(matrix, size, first, second, left, right, c, s, d, t):
    """Rotate the block of two pairs of places, (first, second) by the cosine c and the sine s and
    (left, right) by d and t, and its mirror image. Of a pair, the second place may be beyond the
    matrix."""
    zero = matrix.dtype.type(0)
    a = matrix[first, left]
    b = matrix[first, right] if right < size else zero
    e = matrix[second, left] if second < size else zero
    f = matrix[second, right] if right < size and second < size else zero
    a, e = c * a - s * e, s * a + c * e
    b, f = c * b - s * f, s * b + c * f
    a, b = d * a - t * b, t * a + d * b
    e, f = d * e - t * f, t * e + d * f
    matrix[first, left] = a
    matrix[left, first] = a
    if right < size:
        matrix[first, right] = b
        matrix[right, first] = b
    if second < size:
        matrix[second, left] = e
        matrix[left, second] = e
        if right < size:
            matrix[second, right] = f
            matrix[right, second] = f


@device
def jacobi_rotate(matrix, basis, wanted, cosines, sines, size, turn):
    """Rotate a symmetric matrix, and the columns of a basis if `wanted`."""
    half = (size + 1) // 2
    for task in range(cuda.threadIdx.x, half * half, cuda.blockDim.x):
        k, other = task // half, task % half
        if k <= other:
            first, second = round_pair(turn, k, 2 * half)
            left, right = round_pair(turn, other, 2 * half)
            if k < other:
                c, s, d, t = cosines[k], sines[k], cosines[other], sines[other]
                jacobi_block(matrix, size, first, second, left, right, c, s, d, t)
            elif second < size:
                jacobi_diagonal(matrix, first, second, cosines[k], sines[k])
    if wanted:
        for task in range(cuda.threadIdx.x, half * size, cuda.blockDim.x):
            k, i = task % half, task // half
            first, second = round_pair(turn, k, 2 * half)
            if second < size:
                a, b = basis[i, first], basis[i, second]
                basis[i, first] = cosines[k] * a - sines[k] * b
                basis[i, second] = sines[k] * a + cosines[k] * b


@device
def jacobi_diagonalise(matrix, basis, wanted, cosines, sines, size, small):
    """Make a symmetric matrix diagonal, up to entries of size `small`; the columns of `basis`
    become its eigenvectors if `wanted`. Whether the iteration converges."""
    sweep = 0
    going = 1
    while going > 0 and sweep < SWEEPS:
        sweep += 1
        found = 0
        for turn in range(2 * ((size + 1) // 2) - 1):
            found |= jacobi_angles(matrix, cosines, sines, size, turn, small)
            cuda.syncthreads()
            jacobi_rotate(matrix, basis, wanted, cosines, sines, size, turn)
            cuda.syncthreads()
        going = cuda.syncthreads_or(found)
    return going == 0


@device
def jacobi_begin(a, usable, matrix, basis, wanted):
    """matrix = the symmetric matrix whose lower triangle is that of `a`, or zero if that is not
    `usable`; basis = the identity if `wanted`."""
    n = a.shape[0]
    for task in range(cuda.threadIdx.x, n * n, cuda.blockDim.x):
        i, j = task // n, task % n
        matrix[i, j] = 0
        if usable:
            matrix[i, j] = a[max(i, j), min(i, j)]
        if wanted:
            basis[i, j] = 1 if i == j else 0


@device
def diagonal_place(matrix, n, row):
    """The place of a diagonal entry among all, the least first."""
    value = matrix[row, row]
    place = 0
    for i in range(n):
        if matrix[i, i] < value or (matrix[i, i] == value and i < row):
            place += 1
    return place


@device
def jacobi_finish(matrix, basis, wanted, values, vectors):
    """values = the diagonal of a matrix, ascending; vectors = the columns of the basis in that
    order, each with its sign."""
    n = values.shape[0]
    for j in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        place = diagonal_place(matrix, n, j)
        values[place] = matrix[j, j]
        if wanted:
            sign = column_sign(basis, n, j)
            for i in range(n):
                vectors[i, place] = sign * basis[i, j]


@kernel("real[:, :, ::1], real[:, ::1], real[:, :, ::1], int64, float64, int32[::1], int64")
def small_symmetric_eigen(a, values, vectors, wanted, precision, failures, failure):
    """values (stack, n) and, if `wanted`, vectors (stack, n, n) of matrices of SMALL rows
    at most, by a block for each."""
    matrix = cuda.shared.array((SMALL, STEP), values.dtype)
    basis = cuda.shared.array((SMALL, STEP), values.dtype)
    cosines = cuda.shared.array(SMALL, values.dtype)
    sines = cuda.shared.array(SMALL, values.dtype)
    stack, n = values.shape
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        row_sizes(a[s], cosines)
        cuda.syncthreads()
        largest = largest_size(cosines, n)
        usable = largest < math.inf
        jacobi_begin(a[s], usable, matrix, basis, wanted)
        cuda.syncthreads()
        small = precision * largest
        done = jacobi_diagonalise(matrix, basis, wanted, cosines, sines, n, small)
        if cuda.threadIdx.x == 0 and not (done and usable):
            failures[failure] = 1
        place = s if wanted else 0
        jacobi_finish(matrix, basis, wanted, values[s], vectors[place])
        cuda.syncthreads()


@kernel(
    "real[:, :, ::1], real[:, ::1], real[:, :, ::1], real[:, :, ::1], real[:, :, ::1], "
    "real[:, :, ::1], int64, float64, int32[::1], int64"
)
def large_symmetric_eigen(
    a, values, vectors, matrix, basis, angles, wanted, precision, failures, failure
):
    """As `small_symmetric_eigen`, with a workspace (stack, n, n) for a matrix, one for a basis if
    `wanted`, and one (stack, 2, n) for angles."""
    stack, n = values.shape
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        cosines, sines = angles[s, 0], angles[s, 1]
        row_sizes(a[s], cosines)
        cuda.syncthreads()
        largest = largest_size(cosines, n)
        usable = largest < math.inf
        place = s if wanted else 0
        jacobi_begin(a[s], usable, matrix[s], basis[place], wanted)
        cuda.syncthreads()
        small = precision * largest
        done = jacobi_diagonalise(matrix[s], basis[place], wanted, cosines, sines, n, small)
        if cuda.threadIdx.x == 0 and not (done and usable):
            failures[failure] = 1
        jacobi_finish(matrix[s], basis[place], wanted, values[s], vectors[place])
        cuda.syncthreads()


def jacobi_eigen(run, a, values, vectors, wanted, failure):
    """Launch Jacobi's method."""
    stack, n = values.shape
    blocks = blocks_for(stack, 1) if n > 0 else 0
    threads = power_of_two(n * (n + 1) // 2, THREADS)
    last = (wanted, precision_of(values.dtype), run.failures, failure)
    if n <= SMALL:
        run.launch(small_symmetric_eigen, blocks, threads, a, values, vectors, *last)
        return
    work = run.empty((stack, n, n)), run.empty((stack if wanted else 1, n, n))
    angles = run.empty((stack, 2, n))
    run.launch(large_symmetric_eigen, blocks, threads, a, values, vectors, *work, angles, *last)


def symmetric_eigen(run, a, values, vectors, failure):
    """values (stack, n), vectors (stack, n, n): A = V diag(values) V' for symmetric matrices, of
    which the lower triangle is read. It fails where an entry is not finite, or the iteration does
    not converge."""
    if has_library(values.shape[1]):
        eigen_by_library(run, a, values, vectors, failure)
    else:
        jacobi_eigen(run, a, values, vectors, 1, failure)


def symmetric_eigenvalues(run, a, values, failure):
    """values (stack, n) of symmetric matrices, of which the lower triangle is read. It fails where
    an entry is not finite, or the iteration does not converge."""
    if has_library(values.shape[1]):
        eigen_by_library(run, a, values, None, failure)
    else:
        jacobi_eigen(run, a, values, run.empty((1, *a.shape[1:])), 0, failure)


@kernel("real[:, :, ::1], real[:, ::1], int32[::1], int64")
def sort_diagonals(form, values, failures, failure):
    """values (stack, n) = the diagonals of real Schur forms, ascending. It fails where one has a
    block of two rows."""
    stack, n = values.shape
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        for j in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            if coupled(form[s], j):
                failures[failure] = 1
            values[s, diagonal_place(form[s], n, j)] = form[s, j, j]


def schur_of(run, a, failure):
    """New arrays: real Schur forms and their vectors."""
    form, vectors = run.empty(a.shape), run.empty(a.shape)
    schur(run, a, form, vectors, failure)
    return form, vectors


def real_eigenvalues(run, a, values, failure):
    """values (stack, n), ascending. It fails where one is not real, or an entry not finite."""
    stack, n = values.shape
    form, _ = schur_of(run, a, failure)
    blocks = blocks_for(stack, 1) if n > 0 else 0
    threads = power_of_two(n, THREADS)
    run.launch(sort_diagonals, blocks, threads, form, values, run.failures, failure)


@device
def scale_if_large(x, first, last, most):
    """Divide x[first : last + 1] by x[first] if that is larger than `most`."""
    size = abs(x[first])
    if size > most:
        for i in range(first, last + 1):
            x[i] /= size


@device
def triangular_eigenvector(a, k, x, precision, least, most):
    """x = an eigenvector of an upper triangular matrix to its diagonal entry k, by substitution;
    differences of eigenvalues that are nothing are taken for the least that is not."""
    value = a[k, k]
    nothing = max(precision * abs(value), least)
    for i in range(k + 1, len(x)):
        x[i] = 0
    x[k] = 1
    for step in range(k):
        i = k - 1 - step
        total = x.dtype.type(0)
        for m in range(i + 1, k + 1):
            total += a[i, m] * x[m]
        gap = a[i, i] - value
        if abs(gap) < nothing:
            gap = x.dtype.type(nothing)
        x[i] = -total / gap
        scale_if_large(x, i, k, most)


@kernel("real[:, :, ::1], real[:, :, ::1], float64, float64, float64")
def triangular_eigenvectors(form, rows, precision, least, most):
    """rows (stack, n, n) = the eigenvectors of upper triangular matrices, each by a thread."""
    stack, n, _ = form.shape
    for task in range(cuda.grid(1), stack * n, cuda.gridsize(1)):
        s, k = task // n, task % n
        triangular_eigenvector(form[s], k, rows[s, k], precision, least, most)


@kernel("real[:, :, ::1], real[:, :, ::1], real[:, :, ::1]")
def sort_unit_columns(form, columns, vectors):
    """vectors (stack, n, n) = the columns, ordered as the diagonals of `form`, of length 1 and
    with their signs."""
    stack, n, _ = form.shape
    for task in range(cuda.grid(1), stack * n, cuda.gridsize(1)):
        s, j = task // n, task % n
        largest = form.dtype.type(0)
        for i in range(n):
            largest = max(largest, abs(columns[s, i, j]))
        total = form.dtype.type(0)
        for i in range(n):
            total += (columns[s, i, j] / largest) * (columns[s, i, j] / largest)
        length = largest * math.sqrt(total) * column_sign(columns[s], n, j)
        place = diagonal_place(form[s], n, j)
        for i in range(n):
            vectors[s, i, place] = columns[s, i, j] / length


@kernel("real[:, :, ::1], real[:, :, ::1], real[:, ::1], float64, int32[::1], int64")
def require_independent(vectors, inverse, sums, least, failures, failure):
    """Whether the reciprocal condition number of each matrix is more than `least`."""
    for s in range(cuda.blockIdx.x, vectors.shape[0], cuda.gridDim.x):
        condition = largest_row(vectors[s], sums[s]) * largest_row(inverse[s], sums[s])
        if cuda.threadIdx.x == 0 and not least * condition < 1:
            failures[failure] = 1
        cuda.syncthreads()


def independent_columns(run, vectors, failure):
    """It fails where the columns of a square matrix are linearly dependent up to rounding."""
    stack, n, _ = vectors.shape
    factored, inverse = run.empty(vectors.shape), run.empty(vectors.shape)
    sums, pivots = run.empty((stack, n)), run.empty((stack, n), np.int32)
    copy_stack(run, vectors, factored)
    lu_factor(run, factored, pivots)
    lu_inverse(run, factored, pivots, inverse)
    least = 10 * n * precision_of(vectors.dtype)
    blocks = blocks_for(stack, 1) if n > 0 else 0
    threads = power_of_two(n, THREADS)
    last = sums, least, run.failures, failure
    run.launch(require_independent, blocks, threads, vectors, inverse, *last)


def real_eigenvectors(run, a, values, vectors, failure):
    """values (stack, n), ascending, vectors (stack, n, n): A V = V diag(values), the columns of V
    of unit length, of each the first of the largest entries positive. It fails where a value is
    not real, V is singular up to rounding, or an entry not finite."""
    stack, n = values.shape
    form, basis = schur_of(run, a, failure)
    blocks = blocks_for(stack, 1) if n > 0 else 0
    threads = power_of_two(n, THREADS)
    run.launch(sort_diagonals, blocks, threads, form, values, run.failures, failure)
    rows, columns = run.empty(a.shape), run.empty(a.shape)
    precision = precision_of(values.dtype)
    least = float(np.finfo(values.dtype).tiny) * max(n, 1) / precision
    limits = precision, least, precision / least**0.5
    run.launch(triangular_eigenvectors, *entries(stack * n), form, rows, *limits)
    gemm(run, 1.0, basis, False, rows, True, 0.0, columns)
    run.launch(sort_unit_columns, *entries(stack * n), form, columns, vectors)
    independent_columns(run, vectors, failure)
