"""Factorisations without exchanges of rows or columns: Cholesky, LU, QR; pseudoinverses by QR."""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import THREADS, device, kernel, power_of_two
from .blocks import (
    LANES,
    SMALL,
    STEP,
    block_sum,
    blocks_for,
    entries,
    large_matrices,
    load_matrix,
    small_matrices,
)
from .cholesky import cholesky_factor
from .copies import copy_stack, transpose
from .libraries import fail, has_library, qr_by_library
from .triangular import triangular_solve_columns


def lower_factor(run, a, out, failure):
    """out (stack, n, n) = the lower triangular L with L L' = A, zero above the diagonal; only the
    lower triangle of A is read. It fails where a matrix is not positive definite."""
    run.launch(copy_lower, *entries(out.size), a, out, 1.0)
    cholesky_factor(run, out, failure)
    if has_library(a.shape[1]):
        run.launch(copy_lower, *entries(out.size), out, out, 1.0)


def half_lower(run, a, out):
    """out (stack, n, n) = the lower triangle of A with half of the diagonal, zero above."""
    run.launch(copy_lower, *entries(out.size), a, out, 0.5)


def unpivoted_lu(run, a, lower, upper, failure):
    """lower, upper (stack, n, n): A = L U with ones on the diagonal of L, row by row. It fails
    where a pivot is zero, or no more than the rounding error of what it was computed from."""
    stack, n, _ = a.shape
    checks = n * float(np.finfo(a.dtype).eps), run.failures, failure
    if n <= SMALL:
        run.launch(unpivoted_tiles, *small_matrices(stack, n), a, lower, upper, *checks)
    else:
        layout, sizes = large_matrices(stack, n), run.empty((stack, n))
        run.launch(unpivoted_matrices, *layout, a, lower, upper, sizes, *checks)


def thin_qr(run, a, q, r, failure):
    """q (stack, p, k), r (stack, k, k): A = Q R with a positive diagonal of R. It fails where the
    columns of a matrix are linearly dependent up to rounding."""
    stack, p, k = a.shape
    if p < k:
        fail(run, failure)
        return
    columns = run.empty((stack, k, p))
    basis = run.empty((stack, k, p))
    transpose(run, a, columns)
    qr_of_columns(run, columns, basis, r, failure)
    transpose(run, basis, q)


def full_rank_pinv(run, a, out, failure):
    """out (stack, q, p) = inv(R) Q' for A = Q R, or the transpose of that for A' = Q R where A has
    more columns than rows. It fails where these columns are linearly dependent up to rounding."""
    stack, p, q = a.shape
    long, short = max(p, q), min(p, q)
    columns = run.empty((stack, short, long))
    r = run.empty((stack, short, short))
    if p >= q:
        inverse = out
        transpose(run, a, columns)
    else:
        inverse = run.empty((stack, short, long))
        copy_stack(run, a, columns)
    qr_of_columns(run, columns, inverse, r, failure)
    triangular_solve_columns(run, r, inverse, False, False)
    if p < q:
        transpose(run, inverse, out)


def qr_of_columns(run, columns, basis, r, failure):
    """A = Q R, the columns of A in the rows of `columns` (stack, k, p), which are overwritten, and
    those of Q in the rows of `basis`."""
    stack, k, p = columns.shape
    blocks = blocks_for(stack, 1) if k else 0
    if has_library(k):
        qr_by_library(run, columns, basis)
    else:
        width = power_of_two(p, LANES)
        threads = width, power_of_two(k, THREADS // width)
        diagonal = run.empty((stack, k))
        run.launch(householder_qr, blocks, threads, columns, basis, diagonal)
    checks = p * float(np.finfo(columns.dtype).eps), run.failures, failure
    run.launch(finish_qr, blocks, power_of_two(p, THREADS), columns, basis, r, *checks)


@kernel("real[:, :, ::1], real[:, :, ::1], real")
def copy_lower(a, out, share):
    """out (stack, n, n) = the lower triangle of A with a share of the diagonal, zero above."""
    stack, n, _ = a.shape
    for entry in range(cuda.grid(1), stack * n * n, cuda.gridsize(1)):
        j = entry % n
        i = entry // n % n
        s = entry // n // n
        if j < i:
            out[s, i, j] = a[s, i, j]
        elif i == j:
            out[s, i, j] = share * a[s, i, j]
        else:
            out[s, i, j] = 0


@device
def unpivoted_steps(a, left, n, sizes, small, failures, failure):
    """Eliminate in a[:n, left : left + n] by a row of threads; the multipliers below the diagonal
    are left undivided by their pivots. sizes[left:]: of what the pivots are computed from."""
    t, width = cuda.threadIdx.x, cuda.blockDim.x
    lanes = min(width, LANES)
    lane, row, rows = t % lanes, t // lanes, width // lanes
    for i in range(t, n, width):
        sizes[left + i] = abs(a[i, left + i])
    for k in range(n):
        cuda.syncthreads()
        pivot = a[k, left + k]
        if t == 0 and not abs(pivot) > small * sizes[left + k]:
            failures[failure] = 1
        for j in range(k + 1 + lane, n, lanes):
            factor = a[k, left + j] / pivot
            for i in range(k + 1 + row, n, rows):
                change = a[i, left + k] * factor
                a[i, left + j] -= change
                if i == j:
                    sizes[left + i] += abs(change)
    cuda.syncthreads()


@device
def split_factors(a, left, n, lower, upper, s):
    """Set the factors of matrix s from what elimination leaves."""
    for j in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        for i in range(n):
            if i > j:
                lower[s, i, j] = a[i, left + j] / a[j, left + j]
                upper[s, i, j] = 0
            else:
                lower[s, i, j] = i == j
                upper[s, i, j] = a[i, left + j]


@kernel("real[:, :, ::1], real[:, :, ::1], real[:, :, ::1], real, int32[::1], int64")
def unpivoted_tiles(a, lower, upper, small, failures, failure):
    """Factor matrices in shared memory, each by a row of threads."""
    stack, n, _ = a.shape
    sizes = cuda.shared.array(SMALL, a.dtype)
    tile = cuda.shared.array((SMALL, STEP), a.dtype)
    left = cuda.threadIdx.y * cuda.blockDim.x
    step = cuda.gridDim.x * cuda.blockDim.y
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, stack, step):
        s = min(first + cuda.threadIdx.y, stack - 1)
        load_matrix(a, s, tile, n)
        cuda.syncthreads()
        unpivoted_steps(tile, left, n, sizes, small, failures, failure)
        split_factors(tile, left, n, lower, upper, s)
        cuda.syncthreads()


@kernel("real[:, :, ::1], real[:, :, ::1], real[:, :, ::1], real[:, ::1], real, int32[::1], int64")
def unpivoted_matrices(a, lower, upper, sizes, small, failures, failure):
    """Factor matrices in place of the upper factor, each by a block."""
    stack, n, _ = a.shape
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        for j in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            for i in range(n):
                upper[s, i, j] = a[s, i, j]
        cuda.syncthreads()
        unpivoted_steps(upper[s], 0, n, sizes[s], small, failures, failure)
        split_factors(upper[s], 0, n, lower, upper, s)


@device
def reflect(w, i, x, j, inside, scale, shared):
    """Apply I - v v' / scale to the row x[j, i:], by a row of threads; v = w[i, i:], nothing for
    scale = 0. All of the block takes part; rows of threads not `inside` have nothing to change."""
    p = w.shape[1]
    total = w.dtype.type(0)
    if inside and scale != 0:
        for e in range(i + cuda.threadIdx.x, p, cuda.blockDim.x):
            total += w[i, e] * x[j, e]
    total = block_sum(total, shared)
    if inside and scale != 0:
        total /= scale
        for e in range(i + cuda.threadIdx.x, p, cuda.blockDim.x):
            x[j, e] -= total * w[i, e]
    cuda.syncthreads()


@kernel("real[:, :, ::1], real[:, :, ::1], real[:, ::1]")
def householder_qr(columns, basis, diagonal):
    """Householder's method, each matrix by a block; what is in rows here are columns there.

    Row i of a matrix of `columns` becomes first the reflector v of its step from entry i on, before
    that entry column i of R; the diagonal of R goes to `diagonal` and in the end to entry i. With
    v = x - b e, |b| = |x|, the reflection is I - v v' / |b v[0]| (Golub and Van Loan, 5.1).
    """
    stack, k, p = columns.shape
    shared = cuda.shared.array(THREADS, columns.dtype)
    t, group, groups = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockDim.y
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        w, x = columns[s], basis[s]
        for i in range(k):
            total = w.dtype.type(0)
            for e in range(i + t, p, cuda.blockDim.x):
                total += w[i, e] * w[i, e]
            norm = block_sum(total, shared)
            norm = math.sqrt(norm) if norm > 0 else norm
            head = w[i, i]
            scale = norm * (norm + abs(head))
            cuda.syncthreads()
            if t == 0 and group == 0:
                diagonal[s, i] = -norm if head > 0 else norm
                w[i, i] = head + norm if head > 0 else head - norm
            cuda.syncthreads()
            for first in range(i + 1, k, groups):
                j = first + group
                reflect(w, i, w, j, j < k, scale, shared)
            cuda.syncthreads()
        for first in range(0, k, groups):
            j = first + group
            if j < k:
                for e in range(t, p, cuda.blockDim.x):
                    x[j, e] = e == j
            cuda.syncthreads()
            for step in range(k):
                i = k - 1 - step
                scale = abs(diagonal[s, i] * w[i, i])
                reflect(w, i, x, j, i <= j and j < k, scale, shared)
        cuda.syncthreads()
        if group == 0:
            for i in range(t, k, cuda.blockDim.x):
                w[i, i] = diagonal[s, i]


@kernel("real[:, :, ::1], real[:, :, ::1], real[:, :, ::1], real, int32[::1], int64")
def finish_qr(columns, basis, r, small, failures, failure):
    """r (stack, k, k) from `columns`, with a positive diagonal, and the signs of `basis` that go
    with that, each matrix by a block; whether all columns are independent."""
    stack, k, p = columns.shape
    t, width = cuda.threadIdx.x, cuda.blockDim.x
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        for j in range(t, k, width):
            length = columns.dtype.type(0)
            for i in range(k):
                entry = columns[s, j, i] if i <= j else columns.dtype.type(0)
                length = math.hypot(length, entry)
                r[s, i, j] = -entry if columns[s, i, i] < 0 else entry
            if not abs(columns[s, j, j]) > small * length:
                failures[failure] = 1
        for i in range(k):
            if columns[s, i, i] < 0:
                for e in range(t, p, width):
                    basis[s, i, e] = -basis[s, i, e]
