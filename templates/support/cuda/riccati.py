"""Stabilising solutions of algebraic Riccati equations.

From the stable invariant subspace of a matrix (Laub 1979), the Hamiltonian one in continuous time;
in discrete time what a Cayley transformation makes of the pencil, which takes the unit disk to the
left half plane. The subspace is found by the sign of the matrix (Roberts 1971, Byers 1987). Then
steps of Newton's method (Kleinman 1968, Hewer 1971). All in double precision.
"""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import kernel
from .blas import gemm
from .blocks import entries, matrices, position
from .copies import copied, copy_stack, transpose
from .factors import full_rank_pinv
from .frechet import combine_blocks, part_of, widened
from .lu import lu_factor, lu_inverse, lu_logabsdet, lu_solve_columns, lu_solve_rows
from .norms import largest_column, precision_of
from .stein import cayley, lyapunov

SIGN_STEPS = 20
"""Steps to the sign of a matrix. It converges in ten unless an eigenvalue is nearly imaginary."""
SINGULAR = 1e-15
"""Matrices with a pivot that is not larger, relative to their 1-norm, count as singular."""
CONVERGED = 1e-6
"""The largest last step of Newton's method, relative to the solution, that is accepted."""


@kernel("float64[:, :, ::1], real[:, :, ::1]")
def symmetric_parts(a, out):
    """out = the symmetric parts."""
    for number in range(cuda.grid(1), a.size, cuda.gridsize(1)):
        s, i, j = position(number, a.shape)
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
    for number in range(cuda.grid(1), a.size, cuda.gridsize(1)):
        s, i, j = position(number, a.shape)
        n = a.shape[1]
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
    n = a.shape[1]
    for number in range(cuda.grid(1), total.size, cuda.gridsize(1)):
        s, i, j = position(number, total.shape)
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


@kernel("float64[:, :, ::1], float64[:, :, ::1], float64[::1]")
def step_to_sign(a, inverse, logarithms):
    """a = (c a + inverse / c) / 2, c a scale from the logarithm of the size of the determinant."""
    for number in range(cuda.grid(1), a.size, cuda.gridsize(1)):
        s, i, j = position(number, a.shape)
        scale = math.exp(-logarithms[s] / a.shape[1])
        a[s, i, j] = (scale * a[s, i, j] + inverse[s, i, j] / scale) / 2.0


@kernel("complex128[:, :, ::1], int32[::1], int64")
def require_stable(form, failures, failure):
    """It fails where an eigenvalue in the diagonal of a Schur form is not in the open left half
    plane."""
    stack, n, _ = form.shape
    for place in range(cuda.grid(1), stack * n, cuda.gridsize(1)):
        i = place % n
        if not form[place // n, i, i].real < 0:
            failures[failure] = 1


@kernel("float64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1], int64, float64[:, :, ::1]")
def add_costs(half, q, x, discrete, residual):
    """Add Q - X to the residual if `discrete`; else it becomes half + half' + Q."""
    for number in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        s, i, j = position(number, x.shape)
        if discrete:
            residual[s, i, j] += q[s, i, j] - x[s, i, j]
        else:
            residual[s, i, j] = half[s, i, j] + half[s, j, i] + q[s, i, j]


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
    run.launch(measure_columns, *matrices(stack, n, n), a, run.empty((stack, n)), sizes)
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


def sign_of(run, matrix):
    """Replace matrices by their signs, of the same eigenvectors, with eigenvalues -1 and 1."""
    factors, inverse = run.empty(matrix.shape), run.empty(matrix.shape)
    pivots, logarithms = run.empty(matrix.shape[:2], np.int32), run.empty(matrix.shape[:1])
    for _ in range(SIGN_STEPS):
        copy_stack(run, matrix, factors)
        lu_factor(run, factors, pivots)
        lu_logabsdet(run, factors, pivots, logarithms)
        lu_inverse(run, factors, pivots, inverse)
        run.launch(step_to_sign, *entries(matrix.size), matrix, inverse, logarithms)


def riccati_start(run, a, b, q, r, discrete, failure):
    """The stabilising solutions, up to rounding errors that the subspace makes. It fails where
    there is none.

    The subspace is that of [I; X; ...], and what S - I is of, for the sign S: its first n rows are
    K, the n after X K.
    """
    stack, n, _ = b.shape
    matrix = riccati_matrix(run, a, b, q, r, discrete, failure)
    sign_of(run, matrix)
    (projector,) = combine_blocks(run, -1.0, [(1.0, [matrix])])
    rows, below = (run.empty((stack, n, matrix.shape[1])) for _ in range(2))
    for part, top in ((rows, 0), (below, n)):
        run.launch(part_of, *entries(part.size), projector, top, part)
    inverse, x = run.empty((stack, matrix.shape[1], n)), run.empty(a.shape)
    full_rank_pinv(run, rows, inverse, failure)
    gemm(run, 1.0, below, False, inverse, False, 0.0, x)
    return x


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
    closed, c = closed_loop(run, a, b, q, r, discrete, x, failure)
    f, step = run.empty(a.shape), run.empty(a.shape)
    transpose(run, closed, f)
    if discrete:
        f, c = cayley(run, f, c, failure)
    form = lyapunov(run, f, c, step, precision_of(np.float64), failure)
    layout = entries(a.shape[0] * a.shape[1])
    run.launch(require_stable, *layout, form, run.failures, failure)
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
        (x,) = combine_blocks(run, 0.0, [(1.0, [x]), (1.0 if discrete else -1.0, [step])])
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
