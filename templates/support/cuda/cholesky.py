"""Positive definite systems: Cholesky, A = L L', shared by solve, inverse and determinants."""

# mypy: allow-untyped-defs

import math

from numba import cuda

from .base import device, kernel
from .blas import symmetric_gemm
from .blocks import (
    LANES,
    SMALL,
    STEP,
    large_matrices,
    load_matrix,
    small_matrices,
    store_matrix,
)
from .determinants import DET, LOGABSDET, determinants
from .libraries import cholesky_by_library, has_library
from .triangular import (
    SIDES,
    load_sides,
    solving,
    store_sides,
    substitute,
    triangular_inverse,
    triangular_solve_columns,
    triangular_solve_rows,
)


def cholesky_factor(run, lower, failure):
    """Factor each matrix of `lower` (stack, n, n) in place; what is above the diagonal then is
    undefined. It fails where one is not positive definite; nan makes nan."""
    stack, n, _ = lower.shape
    if n <= SMALL:
        layout = small_matrices(stack, n)
        run.launch(cholesky_tiles, *layout, lower, run.failures, failure)
    elif has_library(n):
        cholesky_by_library(run, lower, failure)
    else:
        layout = large_matrices(stack, n)
        run.launch(cholesky_matrices, *layout, lower, run.failures, failure)


def cholesky_solve_rows(run, lower, b):
    """Replace each row x of `b` (stack, rows, n) by inv(A) x."""
    if lower.shape[1] <= SMALL:
        run.launch(cholesky_solve_tiles, *solving(b, True), lower, b, 1)
    else:
        triangular_solve_rows(run, lower, b, True, False)
        triangular_solve_rows(run, lower, b, True, True)


cholesky_solve_few_rows = cholesky_solve_rows


def cholesky_solve_columns(run, lower, b):
    """Replace each column x of `b` (stack, n, columns) by inv(A) x."""
    if lower.shape[1] <= SMALL:
        run.launch(cholesky_solve_tiles, *solving(b, False), lower, b, 0)
    else:
        triangular_solve_columns(run, lower, b, True, False)
        triangular_solve_columns(run, lower, b, True, True)


def cholesky_inverse(run, lower, out):
    """out (stack, n, n) = the inverse of each factored matrix: X' X with X the inverse of L."""
    inverse = run.empty(tuple(lower.shape))
    triangular_inverse(run, lower, inverse, True)
    symmetric_gemm(run, 1.0, inverse, True, inverse, False, 0.0, out)


def cholesky_det(run, lower, out):
    """out (stack,) = the determinant of each factored matrix."""
    determinants(run, lower, out, DET, True)


def cholesky_logdet(run, lower, out):
    """out (stack,) = log of the determinant of each factored matrix."""
    determinants(run, lower, out, LOGABSDET, True)


@device
def cholesky_steps(a, left, n, failures, failure):
    """Factor the lower triangle of a[:n, left : left + n] by a row of threads. Columns are divided
    by the roots of their pivots at the end."""
    t, width = cuda.threadIdx.x, cuda.blockDim.x
    lanes = min(width, LANES)
    lane, row, rows = t % lanes, t // lanes, width // lanes
    for k in range(n):
        cuda.syncthreads()
        pivot = a[k, left + k]
        if t == 0 and pivot <= 0:
            failures[failure] = 1
        for j in range(k + 1 + lane, n, lanes):
            factor = a[j, left + k] / pivot
            for i in range(j + row, n, rows):
                a[i, left + j] -= a[i, left + k] * factor
    cuda.syncthreads()
    for j in range(t, n, width):
        pivot = a[j, left + j]
        root = math.sqrt(pivot) if pivot > 0 else a.dtype.type(math.nan)
        a[j, left + j] = root
        for i in range(j + 1, n):
            a[i, left + j] /= root
    cuda.syncthreads()


@kernel("real[:, :, ::1], int32[::1], int64")
def cholesky_tiles(lower, failures, failure):
    """Factor matrices in shared memory, each by a row of threads."""
    stack, n, _ = lower.shape
    tile = cuda.shared.array((SMALL, STEP), lower.dtype)
    left = cuda.threadIdx.y * cuda.blockDim.x
    step = cuda.gridDim.x * cuda.blockDim.y
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, stack, step):
        s = min(first + cuda.threadIdx.y, stack - 1)
        load_matrix(lower, s, tile, n)
        cholesky_steps(tile, left, n, failures, failure)
        store_matrix(tile, lower, s, n)


@kernel("real[:, :, ::1], int32[::1], int64")
def cholesky_matrices(lower, failures, failure):
    """Factor matrices in place, each by a block."""
    stack, n, _ = lower.shape
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        cholesky_steps(lower[s], 0, n, failures, failure)


@kernel("real[:, :, ::1], real[:, :, ::1], int64")
def cholesky_solve_tiles(lower, b, by_rows):
    """Solve for rows or columns of b, some of them at a time for each row of threads."""
    stack, n, _ = lower.shape
    total = b.shape[1] if by_rows else b.shape[2]
    parts = (total + SIDES - 1) // SIDES
    tile = cuda.shared.array((SMALL, STEP), b.dtype)
    x = cuda.shared.array((SIDES, STEP), b.dtype)
    left = cuda.threadIdx.y * cuda.blockDim.x
    step = cuda.gridDim.x * cuda.blockDim.y
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, stack * parts, step):
        job = min(first + cuda.threadIdx.y, stack * parts - 1)
        s = job // parts
        begin = job % parts * SIDES
        count = min(total - begin, SIDES)
        load_matrix(lower, s, tile, n)
        load_sides(b, s, begin, count, n, by_rows, 0, x)
        cuda.syncthreads()
        substitute(tile, left, n, x, 0, count, 1, 0, 0)
        substitute(tile, left, n, x, 0, count, 1, 1, 0)
        store_sides(x, b, s, begin, count, n, by_rows)
        cuda.syncthreads()
