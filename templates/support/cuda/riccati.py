"""Stabilising solutions of algebraic Riccati equations, in double precision.

From the stable invariant subspace of a matrix (Laub 1979): the Hamiltonian one in continuous time;
in discrete time the Cayley transform of the pencil, which maps the unit disk to the left half
plane. The matrix sign function gives the subspace (Roberts 1971, Byers 1987). Two steps of Newton's
method follow (Kleinman 1968, Hewer 1971)."""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import kernel, position
from .blas import gemm, product
from .copies import copied, copy_block, copy_stack, transpose
from .factors import full_rank_pinv
from .frechet import combined, widened
from .libraries import fail
from .lu import lu_factor, lu_inverse, lu_logabsdet, lu_solve_columns, lu_solve_rows
from .norms import column_sizes, precision_of
from .shares import clear
from .stein import cayley, lyapunov

SIGN_STEPS = 20
"""Number of iterations for the sign of a matrix. Ten converge unless an eigenvalue is nearly
imaginary."""
MIN_PIVOT_RATIO = 1e-15
"""Matrices with a pivot at most this large, relative to their 1-norm, count as singular."""
MAX_STEP_RATIO = 1e-6
"""The largest last step of Newton's method, relative to the solution, that is accepted."""


@kernel("float64[:, :, ::1], float64[::1], float64, int32[::1], int64")
def require_pivots(lu, sizes, min_ratio, failures, failure):
    """Fail where a diagonal entry of a factored matrix, relative to the size of the matrix, is at
    most `min_ratio`."""
    stack, n, _ = lu.shape
    for place in range(cuda.grid(1), stack * n, cuda.gridsize(1)):
        s, i = place // n, place % n
        if not abs(lu[s, i, i]) > min_ratio * sizes[s]:
            failures[failure] = 1


@kernel("float64[:, :, ::1], float64[:, :, ::1], float64[::1]")
def step_to_sign(a, inverse, logarithms):
    """a = (c a + inverse / c) / 2 with c = |det a|^(-1/n), which speeds up convergence."""
    for number in range(cuda.grid(1), a.size, cuda.gridsize(1)):
        s, i, j = position(number, a.shape)
        scale = math.exp(-logarithms[s] / a.shape[1])
        a[s, i, j] = (scale * a[s, i, j] + inverse[s, i, j] / scale) / 2.0


@kernel("complex128[:, :, ::1], int32[::1], int64")
def require_stable(form, failures, failure):
    """Fail where an eigenvalue, on the diagonal of a Schur form, is not in the open left half
    plane."""
    stack, n, _ = form.shape
    for place in range(cuda.grid(1), stack * n, cuda.gridsize(1)):
        i = place % n
        if not form[place // n, i, i].real < 0:
            failures[failure] = 1


def factor(run, matrix, failure):
    """Replace matrices by their LU factors and return the pivots. Fails where a matrix is singular
    to working precision."""
    sizes = run.to_device(column_sizes(run, matrix)[0], np.float64)
    pivots = run.empty(matrix.shape[:2], np.int32)
    lu_factor(run, matrix, pivots)
    run.launch(require_pivots, pivots.size, matrix, sizes, MIN_PIVOT_RATIO, run.failures, failure)
    return pivots


def solve_rows(run, matrix, rows, failure):
    """Replace each row x of `rows` (stack, n, m) by inv(matrix) x, and the matrices (stack, m, m)
    by their LU factors. Fails where a matrix is singular to working precision."""
    pivots = factor(run, matrix, failure)
    lu_solve_rows(run, matrix, pivots, rows, False)


def transposes(run, a):
    """A new array of the transposed matrices."""
    result = run.empty((a.shape[0], a.shape[2], a.shape[1]))
    transpose(run, a, result)
    return result


def symmetric_part(run, a):
    """A new array of the symmetric parts."""
    return combined(run, 0.0, (0.5, a), (0.5, transposes(run, a)))


def block_matrix(run, stack, size, blocks):
    """A new array (stack, size, size) of zeros and `blocks`: tuples of row, column, matrices and
    options of `copy_block`."""
    result = run.empty((stack, size, size))
    clear(run, result)
    for row, column, block, options in blocks:
        copy_block(run, block, result, place=(row, column), **options)
    return result


def pencil(run, a, b, q, r, sign):
    """N + sign M, of 2 n + m rows, for M z' = N z with z = (x, p, u): x' = A x + B u,
    A' p' = p - Q x and -B' p' = R u."""
    stack, n, m = b.shape
    shifted = combined(run, sign, (1.0, a))
    blocks = [
        (0, 0, shifted, {}),
        (0, 2 * n, b, {}),
        (n, 0, q, {"negated": True}),
        # I + sign A' = sign (A + sign I)'
        (n, n, shifted, {"transposed": True, "negated": sign < 0}),
        (2 * n, n, b, {"transposed": True, "negated": sign > 0}),
        (2 * n, 2 * n, r, {}),
    ]
    return block_matrix(run, stack, 2 * n + m, blocks)


def riccati_matrix(run, a, b, q, r, discrete, failure):
    """The matrix whose invariant subspace for the left half plane gives the solution. Fails where
    there is none."""
    stack, n, _ = b.shape
    if discrete:
        total, difference = pencil(run, a, b, q, r, 1.0), pencil(run, a, b, q, r, -1.0)
        pivots = factor(run, total, failure)
        lu_solve_columns(run, total, pivots, difference, False)
        return difference
    gain = copied(run, b)
    solve_rows(run, copied(run, r), gain, failure)
    corner = product(run, b, False, gain, True)
    blocks = [
        (0, 0, a, {}),
        (0, n, corner, {"negated": True}),
        (n, 0, q, {"negated": True}),
        (n, n, a, {"transposed": True, "negated": True}),
    ]
    return block_matrix(run, stack, 2 * n, blocks)


def sign_of(run, matrix):
    """Replace matrices by their signs: the eigenvectors are the same, eigenvalues become -1 or
    1."""
    factors, inverse = run.empty(matrix.shape), run.empty(matrix.shape)
    pivots, logarithms = run.empty(matrix.shape[:2], np.int32), run.empty(matrix.shape[:1])
    for _ in range(SIGN_STEPS):
        copy_stack(run, matrix, factors)
        lu_factor(run, factors, pivots)
        lu_logabsdet(run, factors, pivots, logarithms)
        lu_inverse(run, factors, pivots, inverse)
        run.launch(step_to_sign, matrix.size, matrix, inverse, logarithms)


def riccati_start(run, a, b, q, r, discrete, failure):
    """The stabilising solutions, with the rounding errors of the subspace. Fails where there is
    none.

    The subspace, spanned by [I; X; ...], is the range of S - I for the sign S: with K for its first
    n rows, the next n are X K."""
    stack, n, _ = b.shape
    matrix = riccati_matrix(run, a, b, q, r, discrete, failure)
    sign_of(run, matrix)
    projector = combined(run, -1.0, (1.0, matrix))
    rows, below = (run.empty((stack, n, matrix.shape[1])) for _ in range(2))
    copy_block(run, projector, rows)
    copy_block(run, projector, below, top=n)
    inverse = run.empty((stack, matrix.shape[1], n))
    full_rank_pinv(run, rows, inverse, failure)
    return product(run, below, False, inverse, False)


def closed_loop(run, a, b, q, r, discrete, x, failure):
    """The closed loop A - B K with the gain K that is optimal for the cost-to-go x (stack, n, n),
    and the residual of the equation as on the CPU. Fails where there is no optimal gain."""
    gain, weight, closed = product(run, x, False, b, False), copied(run, r), copied(run, a)
    if discrete:
        gemm(run, 1.0, gain, True, b, False, 1.0, weight)
        gain = product(run, a, True, gain, False)
    solve_rows(run, weight, gain, failure)
    gemm(run, -1.0, b, False, gain, True, 1.0, closed)
    half, costs = product(run, x, False, closed, False), product(run, gain, False, r, False)
    if discrete:
        inner = product(run, closed, True, half, False)
        residual = combined(run, 0.0, (1.0, inner), (1.0, q), (-1.0, x))
    else:
        residual = combined(run, 0.0, (1.0, half), (1.0, transposes(run, half)), (1.0, q))
    gemm(run, 1.0, costs, False, gain, True, 1.0, residual)
    return closed, residual


def riccati_step(run, a, b, q, r, discrete, x, failure):
    """Newton's step S from x (stack, n, n), S - C' S C = residual if `discrete`; else -1 times the
    step, C' S + S C = residual. Fails where the closed loop C is not stable."""
    closed, c = closed_loop(run, a, b, q, r, discrete, x, failure)
    f, step = transposes(run, closed), run.empty(a.shape)
    if discrete:
        f, c = cayley(run, f, c, failure)
    form = lyapunov(run, f, c, step, precision_of(np.float64), failure)
    run.launch(require_stable, a.shape[0] * a.shape[1], form, run.failures, failure)
    return step


def riccati(run, a, b, q, r, discrete, out, failure):
    """out (stack, n, n) = the stabilising solutions. It fails where there is none."""
    run = run.in_double()
    a, b, q, r = (widened(run, array) for array in (a, b, q, r))
    q, r = symmetric_part(run, q), symmetric_part(run, r)
    x = riccati_start(run, a, b, q, r, discrete, failure)
    for _ in range(2):
        x = symmetric_part(run, x)
        step = riccati_step(run, a, b, q, r, discrete, x, failure)
        x = combined(run, 0.0, (1.0, x), (1.0 if discrete else -1.0, step))
    last_step, sizes = column_sizes(run, step, x)
    if not (last_step <= MAX_STEP_RATIO * sizes).all():
        fail(run, failure)
    copy_stack(run, symmetric_part(run, x), out)


def continuous_riccati(run, a, b, q, r, out, failure):
    """out (stack, n, n) = the stabilising X with A' X + X A - X B inv(R) B' X + Q = 0. It fails
    where there is none."""
    riccati(run, a, b, q, r, False, out, failure)


def discrete_riccati(run, a, b, q, r, out, failure):
    """out (stack, n, n) = the stabilising X with A' X A - X - A' X B inv(R + B' X B) B' X A + Q
    = 0. It fails where there is none."""
    riccati(run, a, b, q, r, True, out, failure)
