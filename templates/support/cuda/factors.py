"""Factorisations without pivoting: Cholesky, LU, QR; pseudoinverses by QR."""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import THREADS, device, kernel, position
from .cholesky import cholesky_factor
from .copies import copy_stack, transpose
from .elementary import real_maximum
from .libraries import by_library, fail, qr_by_library
from .norms import power_below
from .shares import MAXIMUM, reduced
from .triangular import triangular_inverse, triangular_solve_columns


def lower_factor(run, a, out, failure):
    """out (stack, n, n) = the lower triangular L with L L' = A, zero above the diagonal; only the
    lower triangle of A is read. It fails where a matrix is not positive definite."""
    run.launch(copy_lower, out.size, a, out, 1.0)
    cholesky_factor(run, out, failure)
    run.launch(copy_lower, out.size, out, out, 1.0)


def half_lower(run, a, out):
    """out (stack, n, n) = the lower triangle of A with its diagonal halved, zero above."""
    run.launch(copy_lower, out.size, a, out, 0.5)


def unpivoted_lu(run, a, lower, upper, failure):
    """lower, upper (stack, n, n): A = L U with ones on the diagonal of L. Fails where a pivot is
    zero, or no larger than the rounding error of the terms that it is the sum of."""
    stack, n, _ = a.shape
    checks = n * float(np.finfo(a.dtype).eps), run.failures, failure
    terms = run.empty((stack, n))
    copy_stack(run, a, upper)
    run.launch_matrices(unpivoted_matrices, stack, n * n, lower, upper, terms, *checks)


def thin_qr(run, a, q, r, failure):
    """q (stack, p, k), r (stack, k, k): A = Q R with a positive diagonal of R. It fails where the
    columns of a matrix are linearly dependent up to rounding."""
    stack, p, k = a.shape
    if p < k:
        fail(run, failure)
        return
    columns = run.empty((stack, k, p))
    basis = run.empty((stack, k, p))
    inverse = run.empty((stack, k, k))
    transpose(run, a, columns)
    qr_of_columns(run, columns, basis, r)
    transpose(run, basis, q)
    triangular_inverse(run, r, inverse, False)
    checks = 10 * float(np.finfo(a.dtype).eps), run.failures, failure
    run.launch_matrices(require_independent, stack, k, r, inverse, run.empty((stack, k)), *checks)


@kernel("real[:, :, ::1], real[:, :, ::1], real[:, ::1], real, int32[::1], int64")
def require_independent(r, inverse, lengths, rounding, failures, failure):
    """Fail where the columns of an upper triangular matrix are linearly dependent up to rounding,
    as `has_full_rank` on the CPU, a block for each matrix. lengths (stack, k): work array."""
    stack, k, _ = r.shape
    t, width = cuda.threadIdx.x, cuda.blockDim.x
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        for i in range(t, k, width):
            lengths[s, i] = 0
            for j in range(i + 1):
                lengths[s, i] += abs(r[s, j, i])
        cuda.syncthreads()
        for i in range(t, k, width):
            size = r.dtype.type(0)
            for j in range(i + 1):
                size += lengths[s, j] * abs(inverse[s, j, i])
            if not rounding * size < 1:
                failures[failure] = 1


def full_rank_pinv(run, a, out, failure):
    """out (stack, q, p) = inv(R) Q' for A = Q R; for A with more columns than rows, the transpose
    of that for A'. Fails where the condition number of A exceeds the inverse of the precision."""
    stack, p, q = a.shape
    long_side, short_side = max(p, q), min(p, q)
    columns = run.empty((stack, short_side, long_side))
    r = run.empty((stack, short_side, short_side))
    if p >= q:
        inverse = out
        transpose(run, a, columns)
    else:
        inverse = run.empty((stack, short_side, long_side))
        copy_stack(run, a, columns)
    qr_of_columns(run, columns, inverse, r)
    triangular_solve_columns(run, r, inverse, False, False)
    if p < q:
        transpose(run, inverse, out)
    checks = 10 * float(np.finfo(a.dtype).eps), run.failures, failure
    run.launch_matrices(require_condition, stack, long_side if short_side else 0, a, out, *checks)


@kernel("real[:, :, ::1], real[:, :, ::1], real, int32[::1], int64")
def require_condition(a, inverse, rounding, failures, failure):
    """Fail where a condition number, in the norm of `largest_row_sum`, is 1 / rounding or more, a
    block for each matrix."""
    shared = cuda.shared.array(THREADS, a.dtype)
    for s in range(cuda.blockIdx.x, a.shape[0], cuda.gridDim.x):
        condition = largest_row_sum(a[s], shared) * largest_row_sum(inverse[s], shared)
        if cuda.threadIdx.x == 0 and not rounding * condition < 1:
            failures[failure] = 1


@device
def largest_row_sum(a, shared):
    """The largest sum of absolute values of a row of a matrix, by a block."""
    largest = a.dtype.type(0)
    for i in range(cuda.threadIdx.x, a.shape[0], cuda.blockDim.x):
        total = a.dtype.type(0)
        for j in range(a.shape[1]):
            total += abs(a[i, j])
        largest = real_maximum(total, largest)
    return reduced(largest, cuda.blockDim.x, shared, MAXIMUM)


def qr_of_columns(run, columns, basis, r):
    """A = Q R, with the columns of A in the rows of `columns` (stack, k, p), which are overwritten,
    and those of Q in the rows of `basis`."""
    stack, k, p = columns.shape
    if by_library(run, "a QR factorisation", p):
        qr_by_library(columns, basis)
    else:
        work = run.empty((stack, k)), run.empty((stack, k), np.float64)
        run.launch_matrices(householder_qr, stack, k, columns, basis, *work)
    run.launch_matrices(finish_qr, stack, p if k else 0, columns, basis, r)


@kernel("real[:, :, ::1], real[:, :, ::1], real")
def copy_lower(a, out, scale):
    """out (stack, n, n) = the lower triangle of A with its diagonal times `scale`, zero above."""
    for number in range(cuda.grid(1), a.size, cuda.gridsize(1)):
        s, i, j = position(number, a.shape)
        if j < i:
            out[s, i, j] = a[s, i, j]
        elif i == j:
            out[s, i, j] = scale * a[s, i, j]
        else:
            out[s, i, j] = 0


@kernel("real[:, :, ::1], real[:, :, ::1], real[:, ::1], real, int32[::1], int64")
def unpivoted_matrices(lower, upper, terms, rounding, failures, failure):
    """Factor the matrices in `upper`, a block for each. terms (stack, n): the sums of the absolute
    values of the terms of each pivot."""
    stack, n, _ = upper.shape
    t, width = cuda.threadIdx.x, cuda.blockDim.x
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        a = upper[s]
        for i in range(t, n, width):
            terms[s, i] = abs(a[i, i])
        for k in range(n):
            cuda.syncthreads()
            pivot = a[k, k]
            if t == 0 and not abs(pivot) > rounding * terms[s, k]:
                failures[failure] = 1
            for entry in range(t, (n - k - 1) * (n - k - 1), width):
                i, j = k + 1 + entry // (n - k - 1), k + 1 + entry % (n - k - 1)
                change = a[i, k] * (a[k, j] / pivot)
                a[i, j] -= change
                if i == j:
                    terms[s, i] += abs(change)
        cuda.syncthreads()
        for j in range(t, n, width):
            for i in range(n):
                lower[s, i, j] = i == j
                if i > j:
                    lower[s, i, j] = a[i, j] / a[j, j]
                    a[i, j] = 0


@device
def reflect(w, i, x, scale):
    """Apply I - v v' / scale to x[i:] for v = w[i, i:]; do nothing for scale = 0."""
    if scale != 0:
        total = x.dtype.type(0)
        for e in range(i, x.shape[0]):
            total += w[i, e] * x[e]
        total /= scale
        for e in range(i, x.shape[0]):
            x[e] -= total * w[i, e]


@kernel("real[:, :, ::1], real[:, :, ::1], real[:, ::1], float64[:, ::1]")
def householder_qr(columns, basis, diagonal, scales):
    """Householder's method, a block for each matrix, whose columns are the rows of `columns`.

    Row i becomes column i of R: its entries before i, entry i, which is in `diagonal` until the
    end, and from entry i on the reflector v of step i. With v = x - b e, |b| = |x|, the reflection
    is I - v v' / |b v[0]| (Golub and Van Loan, 5.1). diagonal, scales (stack, k): work arrays."""
    stack, k, p = columns.shape
    t, width = cuda.threadIdx.x, cuda.blockDim.x
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        w, x = columns[s], basis[s]
        # squares of unscaled entries could overflow or underflow; Q is the same for scaled columns
        for j in range(t, k, width):
            largest = w.dtype.type(0)
            for e in range(p):
                largest = real_maximum(abs(w[j, e]), largest)
            scales[s, j] = power_below(largest)
            for e in range(p):
                w[j, e] *= scales[s, j]
        cuda.syncthreads()
        for i in range(k):
            norm = w.dtype.type(0)
            for e in range(i, p):
                norm += w[i, e] * w[i, e]
            norm = math.sqrt(norm) if norm > 0 else norm
            head = w[i, i]
            scale = norm * (norm + abs(head))
            cuda.syncthreads()
            if t == 0:
                diagonal[s, i] = -norm if head > 0 else norm
                w[i, i] = head + norm if head > 0 else head - norm
            cuda.syncthreads()
            for j in range(i + 1 + t, k, width):
                reflect(w, i, w[j], scale)
            cuda.syncthreads()
        for j in range(t, k, width):
            for e in range(p):
                x[j, e] = e == j
            for i in range(j, -1, -1):
                reflect(w, i, x[j], abs(diagonal[s, i] * w[i, i]))
        cuda.syncthreads()
        for j in range(t, k, width):
            w[j, j] = diagonal[s, j]
            for e in range(j + 1):
                w[j, e] /= scales[s, j]


@kernel("real[:, :, ::1], real[:, :, ::1], real[:, :, ::1]")
def finish_qr(columns, basis, r):
    """Copy r (stack, k, k) from `columns` and change the signs of r and `basis` to make its
    diagonal positive, a block for each matrix."""
    stack, k, p = columns.shape
    t, width = cuda.threadIdx.x, cuda.blockDim.x
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        for j in range(t, k, width):
            for i in range(k):
                entry = columns[s, j, i] if i <= j else columns.dtype.type(0)
                r[s, i, j] = -entry if columns[s, i, i] < 0 else entry
        for i in range(k):
            if columns[s, i, i] < 0:
                for e in range(t, p, width):
                    basis[s, i, e] = -basis[s, i, e]
