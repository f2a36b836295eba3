"""LU factors with partial pivoting of square matrices; systems, inverses and determinants.

As on the CPU, the factors are those of the transposed matrix: after exchanges of its columns, A is
the product of a lower triangle and an upper one with ones on the diagonal. Functions that solve or
invert require factors that `lu_invertible` accepts."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import device, kernel
from .copies import in_rows, set_identity
from .determinants import DET, LOGABSDET, LOGDET, determinant
from .libraries import by_library, lu_by_library, lu_rows_by_library
from .triangular import substitute, triangular_invertible


def lu_factor(run, lu, pivots):
    """Factor each matrix of `lu` (stack, n, n) in place; a zero pivot stays and means det = 0."""
    stack, n = pivots.shape
    if by_library(run, "an LU factorisation", n):
        lu_by_library(run, lu, pivots)
    else:
        run.launch_matrices(lu_matrices, stack, n * n, lu, pivots)


lu_invertible = triangular_invertible


def lu_solve_rows(run, lu, pivots, b, transposed):
    """Replace each row x of `b` (stack, rows, n) by inv(A) x, or by inv(A)' x."""
    stack, rows, n = b.shape
    if by_library(run, "a linear system", n):
        lu_rows_by_library(run, lu, pivots, b, transposed)
    else:
        run.launch(lu_sides, stack * rows, lu, pivots, b, int(transposed))


lu_solve_each_row = lu_solve_rows


def lu_solve_columns(run, lu, pivots, b, transposed):
    """Replace each column x of `b` (stack, n, columns) by inv(A) x, or by inv(A)' x."""
    in_rows(run, b, lambda rows: lu_solve_rows(run, lu, pivots, rows, transposed))


def lu_inverse(run, lu, pivots, out):
    """out (stack, n, n) = the inverse of each factored matrix."""
    set_identity(run, out)
    lu_solve_rows(run, lu, pivots, out, True)


lu_det = determinant(DET)
lu_logabsdet = determinant(LOGABSDET)
lu_logdet = determinant(LOGDET)


@kernel("real[:, :, ::1], int32[:, ::1]")
def lu_matrices(lu, pivots):
    """Factor matrices in place, a block for each."""
    stack, n = pivots.shape
    t, width = cuda.threadIdx.x, cuda.blockDim.x
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        a = lu[s]
        for k in range(n):
            cuda.syncthreads()
            pivot_column = k
            for j in range(k + 1, n):
                if abs(a[k, j]) > abs(a[k, pivot_column]):
                    pivot_column = j
            pivot = a[k, pivot_column]
            cuda.syncthreads()
            if t == 0:
                pivots[s, k] = pivot_column + 1
            for i in range(t, n if pivot_column != k else 0, width):
                a[i, k], a[i, pivot_column] = a[i, pivot_column], a[i, k]
            cuda.syncthreads()
            for entry in range(t, (n - k - 1) * (n - k - 1), width):
                i, j = k + 1 + entry // (n - k - 1), k + 1 + entry % (n - k - 1)
                a[i, j] -= a[i, k] * (a[k, j] / pivot if pivot != 0 else a[k, j])
        cuda.syncthreads()
        for j in range(t, n, width):
            for k in range(j):
                if a[k, k] != 0:
                    a[k, j] /= a[k, k]
        cuda.syncthreads()


@device
def exchange(pivots, x, backwards):
    """Apply the exchanges of a factorisation to a vector."""
    n = x.shape[0]
    for step in range(n):
        i = n - 1 - step if backwards else step
        pivot = pivots[i] - 1
        x[i], x[pivot] = x[pivot], x[i]


@kernel("real[:, :, ::1], int32[:, ::1], real[:, :, ::1], int64")
def lu_sides(lu, pivots, b, transposed):
    """Solve for the rows of b (stack, rows, n), a thread for each."""
    stack, rows, _ = b.shape
    for side in range(cuda.grid(1), stack * rows, cuda.gridsize(1)):
        s = side // rows
        x = b[s, side % rows]
        if transposed:
            exchange(pivots[s], x, False)
            substitute(lu[s], x, 0, 1, 1)
            substitute(lu[s], x, 1, 1, 0)
        else:
            substitute(lu[s], x, 1, 0, 0)
            substitute(lu[s], x, 0, 0, 1)
            exchange(pivots[s], x, True)
