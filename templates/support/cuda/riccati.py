"""Stabilising solutions of algebraic Riccati equations.

From the stable invariant subspace of a matrix (Laub 1979), the Hamiltonian one in continuous time;
in discrete time what a Cayley transformation makes of the pencil, which takes the unit disk to the
left half plane. Then steps of Newton's method (Kleinman 1968, Hewer 1971). All in double precision.
"""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import THREADS, kernel, power_of_two
from .blas import gemm
from .blocks import blocks_for, entries
from .copies import copy_stack
from .jacobi import precision_of
from .jets import widened
from .lu import lu_factor, lu_solve_columns, lu_solve_rows
from .norms import largest_column
from .quasi import coupled
from .reorder import order_schur_forms
from .roots import from_basis, in_basis_of
from .stein import solve_quasi_stein
from .sylvester import schur, solve_quasi_sylvester

SINGULAR = 1e-15
"""A pivot of this size, relative to the matrix, is none."""
CONVERGED = 1e-6
"""The size of the last step of Newton's method, relative to the solution, that is small enough."""


@kernel("float64[:, :, ::1], real[:, :, ::1]")
def symmetric_parts(a, out):
    """out = the symmetric parts."""
    stack, n, _ = a.shape
    for place in range(cuda.grid(1), stack * n * n, cuda.gridsize(1)):
        s, entry = place // (n * n), place % (n * n)
        i, j = entry // n, entry % n
        out[s, i, j] = (a[s, i, j] + a[s, j, i]) / 2.0


@kernel("float64[:, :, ::1], float64[:, ::1], float64[::1]")
def measure_columns(a, sums, sizes):
    """sizes (stack,) = the 1-norms."""
    for s in range(cuda.blockIdx.x, a.shape[0], cuda.gridDim.x):
        size = largest_column(a[s], sums[s])
        if cuda.threadIdx.x == 0:
            sizes[s] = size


@kernel("float64[:, :, ::1], float64[::1], float64, int32[::1], int64")
def require_pivots(lu, sizes, least, failures, failure):
    """It fails where a diagonal entry of a factored matrix is not larger than `least`, relative to
    the size of the matrix."""
    stack, n, _ = lu.shape
    for place in range(cuda.grid(1), stack * n, cuda.gridsize(1)):
        s, i = place // n, place % n
        if not abs(lu[s, i, i]) > least * sizes[s]:
            failures[failure] = 1


@kernel("float64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1]")
def hamiltonian(a, g, q, w):
    """w (stack, 2 n, 2 n) = [[A, -G], [-Q, -A']]."""
    stack, n, _ = a.shape
    for place in range(cuda.grid(1), stack * n * n, cuda.gridsize(1)):
        s, entry = place // (n * n), place % (n * n)
        i, j = entry // n, entry % n
        w[s, i, j] = a[s, i, j]
        w[s, i, n + j] = -g[s, i, j]
        w[s, n + i, j] = -q[s, i, j]
        w[s, n + i, n + j] = -a[s, j, i]


@kernel(
    "float64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1], "
    "float64[:, :, ::1], float64[:, :, ::1]"
)
def pencil_parts(a, b, q, r, total, difference):
    """N + M and N - M, of 2 n + m rows, for M z' = N z with z = (x, p, u): x' = A x + B u,
    A' p' = p - Q x and -B' p' = R u."""
    stack, n, m = b.shape
    size = 2 * n + m
    for place in range(cuda.grid(1), stack * size * size, cuda.gridsize(1)):
        s, entry = place // (size * size), place % (size * size)
        i, j = entry // size, entry % size
        right, left = 0.0, 0.0
        if i < n:
            left = 1.0 if i == j else 0.0
            if j < n:
                right = a[s, i, j]
            elif j >= 2 * n:
                right = b[s, i, j - 2 * n]
        elif i < 2 * n:
            right = 1.0 if i == j else 0.0
            if j < n:
                right = -q[s, i - n, j]
            elif j < 2 * n:
                left = a[s, j - n, i - n]
        elif j >= 2 * n:
            right = r[s, i - 2 * n, j - 2 * n]
        elif j >= n:
            left = -b[s, j - n, i - 2 * n]
        total[s, i, j] = right + left
        difference[s, i, j] = right - left


@kernel("float64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1]")
def split_basis(vectors, matrix, rows):
    """For the first n columns of vectors (stack, 2 n + m, 2 n + m): matrix (stack, n, n) = the
    first n rows of these, transposed, and rows (stack, n, n) = the n after."""
    stack, n, _ = rows.shape
    for place in range(cuda.grid(1), stack * n * n, cuda.gridsize(1)):
        s, entry = place // (n * n), place % (n * n)
        i, j = entry // n, entry % n
        matrix[s, i, j] = vectors[s, j, i]
        rows[s, i, j] = vectors[s, n + i, j]


@kernel("float64[:, :, ::1], int64, int32[::1], int64")
def require_stable(form, discrete, failures, failure):
    """It fails where an eigenvalue of a real Schur form is not in the open left half plane, or
    within the unit circle if `discrete`."""
    stack, n, _ = form.shape
    for place in range(cuda.grid(1), stack * n, cuda.gridsize(1)):
        s, i = place // n, place % n
        t = form[s]
        size = t[i, i]
        if discrete:
            size = abs(size)
            for j in range(i - 1, i + 2, 2):
                if coupled(t, max(i, j)):
                    size = math.sqrt(t[i, i] * t[j, j] - t[i, j] * t[j, i])
            size -= 1.0
        if not size < 0:
            failures[failure] = 1


@kernel("float64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1], int64, float64[:, :, ::1]")
def add_costs(half, q, x, discrete, residual):
    """Add Q - X to the residual if `discrete`; else it becomes half + half' + Q."""
    stack, n, _ = x.shape
    for place in range(cuda.grid(1), stack * n * n, cuda.gridsize(1)):
        s, entry = place // (n * n), place % (n * n)
        i, j = entry // n, entry % n
        if discrete:
            residual[s, i, j] += q[s, i, j] - x[s, i, j]
        else:
            residual[s, i, j] = half[s, i, j] + half[s, j, i] + q[s, i, j]


@kernel("float64, float64[:, :, ::1], float64[:, :, ::1]")
def add_multiple(factor, step, x):
    """x += factor step."""
    stack, n, _ = x.shape
    for place in range(cuda.grid(1), stack * n * n, cuda.gridsize(1)):
        s, entry = place // (n * n), place % (n * n)
        x[s, entry // n, entry % n] += factor * step[s, entry // n, entry % n]


@kernel("float64[::1], float64[::1], float64, int32[::1], int64")
def require_close(steps, sizes, most, failures, failure):
    """It fails where a step is not small, relative to the size of what it goes to."""
    for s in range(cuda.grid(1), len(sizes), cuda.gridsize(1)):
        if not steps[s] <= most * sizes[s]:
            failures[failure] = 1


def column_sizes(run, a):
    """A new array of the 1-norms of a stack of square matrices."""
    stack, n, _ = a.shape
    sizes = run.empty((stack,))
    threads = power_of_two(n, THREADS)
    run.launch(measure_columns, blocks_for(stack, 1), threads, a, run.empty((stack, n)), sizes)
    return sizes


def factored(run, matrix, failure):
    """Replace matrices by their factors; the pivots. It fails where one is singular to working
    precision."""
    sizes = column_sizes(run, matrix)
    pivots = run.empty(matrix.shape[:2], np.int32)
    lu_factor(run, matrix, pivots)
    layout = entries(pivots.size)
    run.launch(require_pivots, *layout, matrix, sizes, SINGULAR, run.failures, failure)
    return pivots


def divided_rows(run, matrix, rows, failure):
    """Replace each row x of `rows` (stack, n, m) by inv(matrix) x, and the matrices (stack, m, m)
    by their factors. It fails where one is singular to working precision."""
    pivots = factored(run, matrix, failure)
    lu_solve_rows(run, matrix, pivots, rows, False)


def copied(run, a):
    """A new array of the same numbers."""
    result = run.empty(a.shape)
    copy_stack(run, a, result)
    return result


def symmetric_copy(run, a):
    """A new array of symmetric parts."""
    result = run.empty(a.shape)
    run.launch(symmetric_parts, *entries(a.size), a, result)
    return result


def riccati_matrix(run, a, b, q, r, discrete, failure):
    """A matrix whose invariant subspace to the left half plane gives the solution. It fails where
    there is none."""
    stack, n, m = b.shape
    if discrete:
        shape = stack, 2 * n + m, 2 * n + m
        total, difference = run.empty(shape), run.empty(shape)
        run.launch(pencil_parts, *entries(total.size), a, b, q, r, total, difference)
        pivots = factored(run, total, failure)
        lu_solve_columns(run, total, pivots, difference, False)
        return difference
    gain, product = copied(run, b), run.empty(a.shape)
    divided_rows(run, copied(run, r), gain, failure)
    gemm(run, 1.0, b, False, gain, True, 0.0, product)
    result = run.empty((stack, 2 * n, 2 * n))
    run.launch(hamiltonian, *entries(a.size), a, product, q, result)
    return result


def riccati_start(run, a, b, q, r, discrete, failure):
    """The stabilising solutions, up to rounding errors that the subspace makes. It fails where
    there is none."""
    stack, n, _ = b.shape
    matrix = riccati_matrix(run, a, b, q, r, discrete, failure)
    size = matrix.shape[1]
    form, vectors = run.empty(matrix.shape), run.empty(matrix.shape)
    schur(run, matrix, form, vectors, failure)
    blocks, threads = blocks_for(stack, 1) if n > 0 else 0, power_of_two(size, THREADS)
    last = n, precision_of(form.dtype), run.failures, failure
    run.launch(order_schur_forms, blocks, threads, form, vectors, *last)
    upper, rows = run.empty(a.shape), run.empty(a.shape)
    run.launch(split_basis, *entries(a.size), vectors, upper, rows)
    divided_rows(run, upper, rows, failure)
    return rows


def closed_loop(run, a, b, q, r, discrete, x, failure):
    """A - B K, where u = -K x is the best control for the costs that x (stack, n, n) says are to
    come, and what is left of the equation. It fails where there is no best."""
    gain, half, residual = run.empty(b.shape), run.empty(a.shape), run.empty(a.shape)
    weight = copied(run, r)
    gemm(run, 1.0, x, False, b, False, 0.0, gain)
    gemm(run, 1.0, x, False, a, False, 0.0, half)
    if discrete:
        gemm(run, 1.0, gain, True, b, False, 1.0, weight)
        gemm(run, 1.0, half, True, b, False, 0.0, gain)
        gemm(run, 1.0, a, True, half, False, 0.0, residual)
    run.launch(add_costs, *entries(a.size), half, q, x, int(discrete), residual)
    costs, closed = copied(run, gain), copied(run, a)
    divided_rows(run, weight, gain, failure)
    gemm(run, -1.0, costs, False, gain, True, 1.0, residual)
    gemm(run, -1.0, b, False, gain, True, 1.0, closed)
    return closed, residual


def riccati_step(run, a, b, q, r, discrete, x, failure):
    """Newton's step from x (stack, n, n): the S with S - C' S C = residual if `discrete`, else the
    opposite of the step, C' S + S C = residual. It fails where the closed loop C of x is not
    stable."""
    closed, residual = closed_loop(run, a, b, q, r, discrete, x, failure)
    form, vectors = run.empty(a.shape), run.empty(a.shape)
    schur(run, closed, form, vectors, failure)
    layout = entries(a.shape[0] * a.shape[1])
    run.launch(require_stable, *layout, form, int(discrete), run.failures, failure)
    right = in_basis_of(run, vectors, residual)
    if discrete:
        solve_quasi_stein(run, form, right, True, precision_of(right.dtype), failure)
    else:
        solve_quasi_sylvester(run, form, form, right, True, False, failure)
    step = run.empty(a.shape)
    from_basis(run, vectors, right, step)
    return step


def riccati(run, a, b, q, r, discrete, out, failure):
    """out (stack, n, n) = the stabilising solutions. It fails where there is none."""
    run = run.in_double()
    a, b, q, r = (widened(run, array) for array in (a, b, q, r))
    q, r = symmetric_copy(run, q), symmetric_copy(run, r)
    x = riccati_start(run, a, b, q, r, discrete, failure)
    for _ in range(2):
        x = symmetric_copy(run, x)
        step = riccati_step(run, a, b, q, r, discrete, x, failure)
        sign = 1.0 if discrete else -1.0
        run.launch(add_multiple, *entries(x.size), sign, step, x)
    sizes = column_sizes(run, step), column_sizes(run, x)
    layout = entries(x.shape[0])
    run.launch(require_close, *layout, *sizes, CONVERGED, run.failures, failure)
    run.launch(symmetric_parts, *entries(x.size), x, out)


def continuous_riccati(run, a, b, q, r, out, failure):
    """out (stack, n, n) = the stabilising X with A' X + X A - X B inv(R) B' X + Q = 0. It fails
    where there is none."""
    riccati(run, a, b, q, r, False, out, failure)


def discrete_riccati(run, a, b, q, r, out, failure):
    """out (stack, n, n) = the stabilising X with A' X A - X - A' X B inv(R + B' X B) B' X A + Q
    = 0. It fails where there is none."""
    riccati(run, a, b, q, r, True, out, failure)
