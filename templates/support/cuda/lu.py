"""General linear systems: LU with partial pivoting, shared by solve, inverse and determinants.

As on the CPU, what is factored is the transposed matrix: the factors of A, after exchanges of its
columns, are a lower triangle and an upper one with ones on its diagonal. What solves and inverts
takes factored matrices of which `lu_invertible` is true.
"""

# mypy: allow-untyped-defs

from numba import cuda

from .base import THREADS, device, kernel, power_of_two
from .blocks import (
    LANES,
    SMALL,
    STEP,
    blocks_for,
    entries,
    large_matrices,
    load_matrix,
    small_matrices,
    store_matrix,
)
from .copies import set_identity, transpose
from .determinants import (
    DET,
    LOGABSDET,
    LOGDET,
    diagonal_layout,
    pivoted_diagonals,
)
from .libraries import (
    has_library,
    lu_by_library,
    lu_rows_by_library,
)
from .triangular import (
    SIDES,
    find_zero_pivots,
    load_sides,
    solving,
    store_sides,
    substitute,
)


def lu_factor(run, lu, pivots):
    """Factor each matrix of `lu` (stack, n, n) in place; a zero pivot stays and means det = 0."""
    stack, n = pivots.shape
    if n <= SMALL:
        run.launch(lu_tiles, *small_matrices(stack, n), lu, pivots)
    elif has_library(n):
        lu_by_library(run, lu, pivots)
    else:
        run.launch(lu_matrices, *large_matrices(stack, n), lu, pivots)


def lu_invertible(run, lu, failure):
    """Whether no factored matrix of `lu` (stack, n, n) is singular."""
    stack, n, _ = lu.shape
    run.launch(find_zero_pivots, *entries(stack * n), lu, run.failures, failure)


def lu_solve_rows(run, lu, pivots, b, transposed):
    """Replace each row x of `b` (stack, rows, n) by inv(A) x, or by inv(A)' x."""
    stack, rows, n = b.shape
    if n <= SMALL:
        lu_solve_small(run, lu, pivots, b, True, False, transposed)
    elif has_library(n):
        lu_rows_by_library(run, lu, pivots, b, transposed)
    else:
        jobs = stack * ((rows + SIDES - 1) // SIDES)
        layout = blocks_for(jobs, 1), power_of_two(n, THREADS)
        run.launch(lu_rows, *layout, lu, pivots, b, int(transposed))


lu_solve_each_row = lu_solve_rows


def lu_solve_columns(run, lu, pivots, b, transposed):
    """Replace each column x of `b` (stack, n, columns) by inv(A) x, or by inv(A)' x."""
    stack, n, columns = b.shape
    if n <= SMALL:
        lu_solve_small(run, lu, pivots, b, False, False, transposed)
    elif columns == 1:
        lu_solve_rows(run, lu, pivots, b.reshape(stack, 1, n), transposed)
    else:
        turned = run.empty((stack, columns, n))
        transpose(run, b, turned)
        lu_solve_rows(run, lu, pivots, turned, transposed)
        transpose(run, turned, b)


def lu_inverse(run, lu, pivots, out):
    """out (stack, n, n) = the inverse of each factored matrix."""
    if out.shape[1] <= SMALL:
        lu_solve_small(run, lu, pivots, out, True, True, True)
    else:
        set_identity(run, out)
        lu_solve_rows(run, lu, pivots, out, True)


def lu_det(run, lu, pivots, out):
    """out (stack,) = the determinant of each factored matrix."""
    run.launch(pivoted_diagonals, *diagonal_layout(lu), lu, pivots, out, DET)


def lu_logabsdet(run, lu, pivots, out):
    """out (stack,) = log of the absolute value of the determinant."""
    run.launch(pivoted_diagonals, *diagonal_layout(lu), lu, pivots, out, LOGABSDET)


def lu_logdet(run, lu, pivots, out):
    """out (stack,) = log of the determinant: -inf where it is zero, nan where it is negative."""
    run.launch(pivoted_diagonals, *diagonal_layout(lu), lu, pivots, out, LOGDET)


def lu_solve_small(run, lu, pivots, b, by_rows, identity, transposed):
    """Solve for the rows or columns of `b`, or for those of the identity, in shared memory."""
    flags = int(by_rows), int(identity), int(transposed)
    run.launch(lu_solve_tiles, *solving(b, by_rows), lu, pivots, b, *flags)


@device
def lu_steps(a, left, pivots, s, n):
    """Factor a[:n, left : left + n] by a row of threads; row s of `pivots` gets its exchanges."""
    t, width = cuda.threadIdx.x, cuda.blockDim.x
    lanes = min(width, LANES)
    lane, row, rows = t % lanes, t // lanes, width // lanes
    for k in range(n):
        cuda.syncthreads()
        chosen = k
        largest = abs(a[k, left + k])
        for j in range(k + 1, n):
            size = abs(a[k, left + j])
            if size > largest:
                largest = size
                chosen = j
        pivot = a[k, left + chosen]
        cuda.syncthreads()
        if t == 0:
            pivots[s, k] = chosen + 1
        if chosen != k:
            for i in range(t, n, width):
                kept = a[i, left + k]
                a[i, left + k] = a[i, left + chosen]
                a[i, left + chosen] = kept
        cuda.syncthreads()
        for j in range(k + 1 + lane, n, lanes):
            factor = a[k, left + j]
            if pivot != 0:
                factor /= pivot
            for i in range(k + 1 + row, n, rows):
                a[i, left + j] -= a[i, left + k] * factor
    cuda.syncthreads()
    for j in range(t, n, width):
        for k in range(j):
            if a[k, left + k] != 0:
                a[k, left + j] /= a[k, left + k]
    cuda.syncthreads()


@kernel("real[:, :, ::1], int32[:, ::1]")
def lu_tiles(lu, pivots):
    """Factor matrices in shared memory, each by a row of threads."""
    stack, n = pivots.shape
    tile = cuda.shared.array((SMALL, STEP), lu.dtype)
    left = cuda.threadIdx.y * cuda.blockDim.x
    step = cuda.gridDim.x * cuda.blockDim.y
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, stack, step):
        s = min(first + cuda.threadIdx.y, stack - 1)
        load_matrix(lu, s, tile, n)
        lu_steps(tile, left, pivots, s, n)
        store_matrix(tile, lu, s, n)


@kernel("real[:, :, ::1], int32[:, ::1]")
def lu_matrices(lu, pivots):
    """Factor matrices in place, each by a block."""
    stack, n = pivots.shape
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        lu_steps(lu[s], 0, pivots, s, n)


@device
def exchange(pivots, s, n, x, first, count, left, backwards):
    """Apply the exchanges of a factorisation to each row x[first : first + count, left:]."""
    for r in range(first + cuda.threadIdx.x, first + count, cuda.blockDim.x):
        for step in range(n):
            i = n - 1 - step if backwards else step
            other = pivots[s, i] - 1
            kept = x[r, left + i]
            x[r, left + i] = x[r, left + other]
            x[r, left + other] = kept


@device
def lu_substitute(a, left, pivots, s, n, x, first, count, transposed):
    """Solve for each row x[first : first + count, left : left + n], by a row of threads."""
    if transposed:
        exchange(pivots, s, n, x, first, count, left, False)
        cuda.syncthreads()
        substitute(a, left, n, x, first, count, 0, 1, 1)
        substitute(a, left, n, x, first, count, 1, 1, 0)
    else:
        substitute(a, left, n, x, first, count, 1, 0, 0)
        substitute(a, left, n, x, first, count, 0, 0, 1)
        exchange(pivots, s, n, x, first, count, left, True)
        cuda.syncthreads()


@kernel("real[:, :, ::1], int32[:, ::1], real[:, :, ::1], int64, int64, int64")
def lu_solve_tiles(lu, pivots, b, by_rows, identity, transposed):
    """Solve for rows or columns of b, some of them at a time for each row of threads."""
    stack, n = pivots.shape
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
        load_matrix(lu, s, tile, n)
        load_sides(b, s, begin, count, n, by_rows, identity, x)
        cuda.syncthreads()
        lu_substitute(tile, left, pivots, s, n, x, 0, count, transposed)
        store_sides(x, b, s, begin, count, n, by_rows)
        cuda.syncthreads()


@kernel("real[:, :, ::1], int32[:, ::1], real[:, :, ::1], int64")
def lu_rows(lu, pivots, b, transposed):
    """Solve for rows of b (stack, rows, n), some of them at a time for each block."""
    stack, rows, n = b.shape
    parts = (rows + SIDES - 1) // SIDES
    for job in range(cuda.blockIdx.x, stack * parts, cuda.gridDim.x):
        s = job // parts
        begin = job % parts * SIDES
        count = min(rows - begin, SIDES)
        lu_substitute(lu[s], 0, pivots, s, n, b[s], begin, count, transposed)
