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
"""Steps to the sign of a matrix. It converges in ten unless an eigenvalue is nearly imaginary."""
SINGULAR = 1e-15
"""Matrices with a pivot that is not larger, relative to their 1-norm, count as singular."""
CONVERGED = 1e-6
"""The largest last step of Newton's method, relative to the solution, that is accepted."""


@kernel("float64[:, :, ::1], float64[::1], float64, int32[::1], int64")
def require_pivots(lu, sizes, least, failures, failure):
    """It fails where a diagonal entry of a factored matrix is not larger than `least`, relative to
    the size of the matrix."""
    stack, n, _ = lu.shape
    for place in range(cuda.grid(1), stack * n, cuda.gridsize(1)):
        s, i = place // n, place % n
        if not abs(lu[s, i, i]) > least * sizes[s]:
            failures[failure] = 1


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


def factored(run, matrix, failure):
    """Replace matrices by their factors; the pivots. It fails where one is singular to working
    precision."""
    sizes = run.put(column_sizes(run, matrix)[0], np.float64)
    pivots = run.empty(matrix.shape[:2], np.int32)
    lu_factor(run, matrix, pivots)
    run.each(require_pivots, pivots.size, matrix, sizes, SINGULAR, run.failures, failure)
    return pivots


def divided_rows(run, matrix, rows, failure):
    """Replace each row x of `rows` (stack, n, m) by inv(matrix) x, and the matrices (stack, m, m)
    by their factors. It fails where one is singular to working precision."""
    pivots = factored(run, matrix, failure)
    lu_solve_rows(run, matrix, pivots, rows, False)


def transposed(run, a):
    """A new array of the transposed matrices."""
    result = run.empty((a.shape[0], a.shape[2], a.shape[1]))
    transpose(run, a, result)
    return result


def symmetric_part(run, a):
    """A new array of the symmetric parts."""
    return combined(run, 0.0, (0.5, a), (0.5, transposed(run, a)))


def in_blocks(run, stack, size, blocks):
    """A new array (stack, size, size) of zeros and blocks: row, column, matrices, and for what
    `copy_block` changes of them."""
    result = run.empty((stack, size, size))
    clear(run, result)
    for row, column, block, changes in blocks:
        copy_block(run, block, result, place=(row, column), **changes)
    return result


def pencil(run, a, b, q, r, sign):
    """N + sign M, of 2 n + m rows, for M z' = N z with z = (x, p, u): x' = A x + B u,
    A' p' = p - Q x and -B' p' = R u."""
    stack, n, m = b.shape
    shifted = combined(run, sign, (1.0, a))
    # I + sign A' = sign (A + sign I)'
    turned = {"turned": True, "negated": sign < 0}
    blocks = [
        *((0, 0, shifted, {}), (0, 2 * n, b, {}), (n, 0, q, {"negated": True})),
        *((n, n, shifted, turned), (2 * n, n, b, {"turned": True, "negated": sign > 0})),
        (2 * n, 2 * n, r, {}),
    ]
    return in_blocks(run, stack, 2 * n + m, blocks)


def riccati_matrix(run, a, b, q, r, discrete, failure):
    """A matrix whose invariant subspace to the left half plane gives the solution. It fails where
    there is none."""
    stack, n, _ = b.shape
    if discrete:
        total, difference = pencil(run, a, b, q, r, 1.0), pencil(run, a, b, q, r, -1.0)
        pivots = factored(run, total, failure)
        lu_solve_columns(run, total, pivots, difference, False)
        return difference
    gain = copied(run, b)
    divided_rows(run, copied(run, r), gain, failure)
    corner, opposite = product(run, b, False, gain, True), {"negated": True}
    blocks = [
        *((0, 0, a, {}), (0, n, corner, opposite), (n, 0, q, opposite)),
        (n, n, a, {"turned": True, **opposite}),
    ]
    return in_blocks(run, stack, 2 * n, blocks)


def sign_of(run, matrix):
    """Replace matrices by their signs, of the same eigenvectors, with eigenvalues -1 and 1."""
    factors, inverse = run.empty(matrix.shape), run.empty(matrix.shape)
    pivots, logarithms = run.empty(matrix.shape[:2], np.int32), run.empty(matrix.shape[:1])
    for _ in range(SIGN_STEPS):
        copy_stack(run, matrix, factors)
        lu_factor(run, factors, pivots)
        lu_logabsdet(run, factors, pivots, logarithms)
        lu_inverse(run, factors, pivots, inverse)
        run.each(step_to_sign, matrix.size, matrix, inverse, logarithms)


def riccati_start(run, a, b, q, r, discrete, failure):
    """The stabilising solutions, up to rounding errors that the subspace makes. It fails where
    there is none.

    The subspace is that of [I; X; ...], and what S - I is of, for the sign S: its first n rows are
    K, the n after X K.
    """
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
    """A - B K, where u = -K x is the best control for the costs that x (stack, n, n) says are to
    come, and what is left of the equation (as on the CPU). It fails where there is no best."""
    gain, weight, closed = product(run, x, False, b, False), copied(run, r), copied(run, a)
    if discrete:
        gemm(run, 1.0, gain, True, b, False, 1.0, weight)
        gain = product(run, a, True, gain, False)
    divided_rows(run, weight, gain, failure)
    gemm(run, -1.0, b, False, gain, True, 1.0, closed)
    half, costs = product(run, x, False, closed, False), product(run, gain, False, r, False)
    if discrete:
        inner = product(run, closed, True, half, False)
        residual = combined(run, 0.0, (1.0, inner), (1.0, q), (-1.0, x))
    else:
        residual = combined(run, 0.0, (1.0, half), (1.0, transposed(run, half)), (1.0, q))
    gemm(run, 1.0, costs, False, gain, True, 1.0, residual)
    return closed, residual


def riccati_step(run, a, b, q, r, discrete, x, failure):
    """Newton's step from x (stack, n, n): the S with S - C' S C = residual if `discrete`, else the
    opposite of the step, C' S + S C = residual. It fails where the closed loop C of x is not
    stable."""
    closed, c = closed_loop(run, a, b, q, r, discrete, x, failure)
    f, step = transposed(run, closed), run.empty(a.shape)
    if discrete:
        f, c = cayley(run, f, c, failure)
    form = lyapunov(run, f, c, step, precision_of(np.float64), failure)
    run.each(require_stable, a.shape[0] * a.shape[1], form, run.failures, failure)
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
    last, sizes = column_sizes(run, step, x)
    if not (last <= CONVERGED * sizes).all():
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
