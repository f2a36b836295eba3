"""Triangular systems by substitution; the other triangle is never read.

What solves and inverts takes matrices of which `triangular_invertible` is true.
"""

# mypy: allow-untyped-defs

from numba import cuda

from .base import THREADS, device, kernel, power_of_two
from .blocks import (
    SMALL,
    STEP,
    blocks_for,
    entries,
    load_matrix,
    small_matrices,
)
from .copies import set_identity, transpose
from .determinants import DET, LOGABSDET, LOGDET, determinants
from .libraries import has_library, triangular_by_library

SIDES = 16
"""So many right-hand sides are solved for at a time."""


def triangular_invertible(run, a, failure):
    """Whether no diagonal entry of a matrix of `a` (stack, n, n) is zero."""
    stack, n, _ = a.shape
    run.launch(find_zero_pivots, *entries(stack * n), a, run.failures, failure)


def triangular_solve_rows(run, a, b, lower, transposed):
    """Replace each row x of `b` (stack, rows, n) by inv(A) x, or by inv(A)' x."""
    triangular_substitution(run, a, b, lower, transposed, False)


def triangular_solve_columns(run, a, b, lower, transposed):
    """Replace each column x of `b` (stack, n, columns) by inv(A) x, or by inv(A)' x."""
    stack, n, columns = b.shape
    if n <= SMALL:
        triangular_small(run, a, b, False, lower, transposed, False)
    elif has_library(n):
        triangular_by_library(run, a, b, False, lower, transposed)
    else:
        turned = run.empty((stack, columns, n))
        transpose(run, b, turned)
        triangular_solve_rows(run, a, turned, lower, transposed)
        transpose(run, turned, b)


def triangular_inverse(run, a, out, lower):
    """out (stack, n, n) = the inverse of each matrix of `a`."""
    triangular_substitution(run, a, out, lower, True, True)


def triangular_det(run, a, out):
    """out (stack,) = the determinant of each triangular matrix of `a`."""
    determinants(run, a, out, DET, False)


def triangular_logabsdet(run, a, out):
    """out (stack,) = log of the absolute value of the determinant."""
    determinants(run, a, out, LOGABSDET, False)


def triangular_logdet(run, a, out):
    """out (stack,) = log of the determinant: -inf where it is zero, nan where it is negative."""
    determinants(run, a, out, LOGDET, False)


def triangular_substitution(run, a, b, lower, transposed, identity):
    """Replace the rows of `b` (stack, rows, n), or those of the identity, by solutions in `b`."""
    stack, rows, n = b.shape
    if n <= SMALL:
        triangular_small(run, a, b, True, lower, transposed, identity)
        return
    if identity:
        set_identity(run, b)
    if has_library(n):
        triangular_by_library(run, a, b, True, lower, transposed)
    else:
        jobs = stack * ((rows - 1) // SIDES + 1)
        layout = blocks_for(jobs, 1), power_of_two(n, THREADS)
        run.launch(triangular_rows, *layout, a, b, int(lower), int(transposed))


def triangular_small(run, a, b, by_rows, lower, transposed, identity):
    """As `triangular_substitution`, in shared memory; or for the columns of `b`."""
    flags = int(by_rows), int(identity), int(lower), int(transposed)
    run.launch(triangular_tiles, *solving(b, by_rows), a, b, *flags)


def solving(b, by_rows):
    """Blocks and threads that solve for the right-hand sides b."""
    stack, rows, columns = b.shape
    n, count = (columns, rows) if by_rows else (rows, columns)
    return small_matrices(stack * ((count + SIDES - 1) // SIDES), n)


@kernel("real[:, :, ::1], int32[::1], int64")
def find_zero_pivots(a, failures, failure):
    """Note if a diagonal entry is zero."""
    stack, n, _ = a.shape
    for entry in range(cuda.grid(1), stack * n, cuda.gridsize(1)):
        i = entry % n
        if a[entry // n, i, i] == 0:
            failures[failure] = 1


@device
def substitute(a, left, n, x, first, count, lower, transposed, unit):
    """Replace each row x[first : first + count, left : left + n] by the solution of equations with
    a triangle of a[:, left : left + n], by a row of threads. unit: whether its diagonal is 1."""
    t, width = cuda.threadIdx.x, cuda.blockDim.x
    forward = lower != transposed
    for step in range(n):
        k = step if forward else n - 1 - step
        if unit == 0 and k % width == t:
            pivot = a[k, left + k]
            for r in range(first, first + count):
                x[r, left + k] /= pivot
        cuda.syncthreads()
        for i in range(t, n, width):
            if i != k and (i > k) == forward:
                factor = a[k, left + i] if transposed else a[i, left + k]
                for r in range(first, first + count):
                    x[r, left + i] -= factor * x[r, left + k]
    cuda.syncthreads()


@device
def load_sides(b, s, begin, count, n, by_rows, identity, x):
    """x[r, i] = entry i of right-hand side begin + r, at this row of threads' place."""
    left = cuda.threadIdx.y * cuda.blockDim.x
    if identity:
        for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            for r in range(count):
                x[r, left + i] = i == begin + r
    elif by_rows:
        for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            for r in range(count):
                x[r, left + i] = b[s, begin + r, i]
    else:
        for r in range(cuda.threadIdx.x, count, cuda.blockDim.x):
            for i in range(n):
                x[r, left + i] = b[s, i, begin + r]


@device
def store_sides(x, b, s, begin, count, n, by_rows):
    """Put what `load_sides` loaded where it was."""
    left = cuda.threadIdx.y * cuda.blockDim.x
    if by_rows:
        for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            for r in range(count):
                b[s, begin + r, i] = x[r, left + i]
    else:
        for r in range(cuda.threadIdx.x, count, cuda.blockDim.x):
            for i in range(n):
                b[s, i, begin + r] = x[r, left + i]


@kernel("real[:, :, ::1], real[:, :, ::1], int64, int64, int64, int64")
def triangular_tiles(a, b, by_rows, identity, lower, transposed):
    """Solve for rows or columns of b, some of them at a time for each row of threads."""
    stack, n, _ = a.shape
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
        load_matrix(a, s, tile, n)
        load_sides(b, s, begin, count, n, by_rows, identity, x)
        cuda.syncthreads()
        substitute(tile, left, n, x, 0, count, lower, transposed, 0)
        store_sides(x, b, s, begin, count, n, by_rows)
        cuda.syncthreads()


@kernel("real[:, :, ::1], real[:, :, ::1], int64, int64")
def triangular_rows(a, b, lower, transposed):
    """Solve for rows of b (stack, rows, n), some of them at a time for each block."""
    stack, rows, n = b.shape
    parts = (rows + SIDES - 1) // SIDES
    for job in range(cuda.blockIdx.x, stack * parts, cuda.gridDim.x):
        s = job // parts
        begin = job % parts * SIDES
        count = min(rows - begin, SIDES)
        substitute(a[s], 0, n, b[s], begin, count, lower, transposed, 0)
