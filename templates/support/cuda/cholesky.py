"""Cholesky factors A = L L' of positive definite matrices; systems, inverses and determinants."""

# mypy: allow-untyped-defs

import math

from numba import cuda

from .base import kernel
from .blas import symmetric_gemm
from .copies import in_rows
from .determinants import DET, LOGABSDET, determinant
from .libraries import by_library, cholesky_by_library
from .triangular import triangular_inverse, triangular_solve_rows


def cholesky_factor(run, lower, failure):
    """Replace each matrix of `lower` (stack, n, n) by its factor L; the upper triangle is undefined
    then. Fails where a matrix is not positive definite; a nan entry gives nan."""
    stack, n, _ = lower.shape
    if by_library(run, "a Cholesky factor", n):
        cholesky_by_library(run, lower, failure)
    else:
        run.launch_matrices(cholesky_matrices, stack, n * n, lower, run.failures, failure)


def cholesky_solve_rows(run, lower, b):
    """Replace each row x of `b` (stack, rows, n) by inv(A) x."""
    triangular_solve_rows(run, lower, b, True, False)
    triangular_solve_rows(run, lower, b, True, True)


cholesky_solve_few_rows = cholesky_solve_rows


def cholesky_solve_columns(run, lower, b):
    """Replace each column x of `b` (stack, n, columns) by inv(A) x."""
    in_rows(run, b, lambda rows: cholesky_solve_rows(run, lower, rows))


def cholesky_inverse(run, lower, out):
    """out (stack, n, n) = the inverse of each factored matrix: X' X with X the inverse of L."""
    inverse = run.empty(tuple(lower.shape))
    triangular_inverse(run, lower, inverse, True)
    symmetric_gemm(run, 1.0, inverse, True, inverse, False, 0.0, out)


cholesky_det = determinant(DET, squared=True)
cholesky_logdet = determinant(LOGABSDET, squared=True)


@kernel("real[:, :, ::1], int32[::1], int64")
def cholesky_matrices(lower, failures, failure):
    """Factor lower triangles in place, a block for each matrix. Columns are divided by the roots of
    their pivots at the end: within the loop, that would take another barrier in each step."""
    stack, n, _ = lower.shape
    t, width = cuda.threadIdx.x, cuda.blockDim.x
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        a = lower[s]
        for k in range(n):
            cuda.syncthreads()
            pivot = a[k, k]
            if t == 0 and pivot <= 0:
                failures[failure] = 1
            for entry in range(t, (n - k - 1) * (n - k - 1), width):
                i, j = k + 1 + entry // (n - k - 1), k + 1 + entry % (n - k - 1)
                if j <= i:
                    a[i, j] -= a[i, k] * (a[j, k] / pivot)
        cuda.syncthreads()
        for j in range(t, n, width):
            pivot = a[j, j]
            root = math.sqrt(pivot) if pivot > 0 else a.dtype.type(math.nan)
            a[j, j] = root
            for i in range(j + 1, n):
                a[i, j] /= root
        cuda.syncthreads()
