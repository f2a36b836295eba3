"""Stabilising solutions of algebraic Riccati equations, from the stable deflating subspace of a
pencil (Laub 1979, van Dooren 1981), found by the QZ algorithm; then two steps of Newton's method
(Kleinman 1968, Hewer 1971)."""

# mypy: allow-untyped-defs, disable-error-code=call-arg

import numpy as np

from ..internals.functions import compiled
from ..internals.memory import copy_entries, empty, zeros
from .blas import NO, VECTORS, gemm
from .copies import copy_matrices
from .frechet import largest_column, scale_blocks
from .lapack import lapack_gges, lapack_tgsen
from .lu import lu_factor, lu_solve_few_rows
from .stein import stein
from .sylvester import schur, schur_sylvester


@compiled(counted=True)
def stable_subspace(left, right, discrete, vectors):
    """Put generalised Schur vectors of the pencil, given as transposed `left` and `right`, into the
    rows of `vectors`: first those of stable eigenvalues, which are within the unit circle if
    `discrete`, else of negative real part. Return the number of stable eigenvalues, or -1 where the
    iteration does not converge.
    """
    n = left.shape[0]
    if n == 0:
        return 0
    info = empty((1,), np.int32)
    count = zeros((1,), np.int32)
    unused = zeros((n,), np.int32)
    real_part, imaginary_part = empty((n,), np.float64), empty((n,), np.float64)
    divisor = empty((n,), np.float64)
    nothing = empty((2,), np.float64)
    size = 64 * n + 64
    pencil, work = (n, left, n, right, n), (empty((size,), np.float64), size, unused)
    results = (real_part, imaginary_part, divisor, nothing, 1, vectors, n)
    lapack_gges((NO, VECTORS, NO, unused, *pencil, count, *results, *work, info))
    if info[0] != 0:
        return -1
    selected = zeros((n,), np.int32)
    for i in range(n):
        if discrete:
            selected[i] = np.hypot(real_part[i], imaginary_part[i]) < divisor[i]
        else:
            selected[i] = real_part[i] < 0
    estimates = (nothing, nothing, nothing)
    lapack_tgsen((0, 0, 1, selected, *pencil, *results, count, *estimates, *work, n, info))
    return count[0] if info[0] == 0 else -1


@compiled()
def symmetric_part(matrices, out):
    """out = the symmetric part of each matrix."""
    for s in range(matrices.shape[0]):
        for i in range(matrices.shape[1]):
            for j in range(i + 1):
                out[s, i, j] = out[s, j, i] = (matrices[s, i, j] + matrices[s, j, i]) / 2.0


@compiled(counted=True)
def solve_rows(matrix, rows):
    """Replace each row x of `rows` (1, n, m) by inv(matrix) x, and the matrix (1, m, m) by its LU
    factors. False where it is singular to working precision."""
    n = matrix.shape[1]
    pivots = empty((1, n), np.int32)
    size = largest_column(matrix[0])
    lu_factor(matrix, pivots)
    for i in range(n):
        if not abs(matrix[0, i, i]) > 1e-15 * size:
            return False
    lu_solve_few_rows(matrix, pivots, rows, False)
    return True


@compiled(counted=True)
def riccati_start(a, b, q, r, discrete, x):
    """x (1, n, n) = the stabilising solution, with the rounding errors of the subspace. False where
    there is none.

    With p = X x, and left z' = right z for z = (x, p, u): in discrete time x' = A x + B u,
    p = Q x + A' p' and 0 = R u + B' p'; in continuous time dx/dt = A x - G p and
    dp/dt = -Q x - A' p, where G = B inv(R) B'.
    """
    n, m = b.shape
    size = 2 * n + m if discrete else 2 * n
    left = zeros((size, size), np.float64)
    right = zeros((size, size), np.float64)
    weight = empty((1, m, m), np.float64)
    gain = empty((1, n, m), np.float64)
    copy_entries(r, weight[0])
    copy_entries(b, gain[0])
    if not discrete and not solve_rows(weight, gain):
        return False
    for i in range(m if discrete else 0):
        for j in range(m):
            left[2 * n + j, 2 * n + i] = r[i, j]
        for j in range(n):
            left[2 * n + i, j] = b[j, i]
            right[n + j, 2 * n + i] = -b[j, i]
    for i in range(n):
        for j in range(n):
            left[j, i] = a[i, j]
            left[j, n + i] = -q[i, j]
            if discrete:
                right[n + j, n + i] = a[j, i]
            else:
                left[n + j, n + i] = -a[j, i]
                for k in range(m):
                    left[n + j, i] -= b[i, k] * gain[0, j, k]
        right[i, i] = 1.0
        if discrete:
            left[n + i, n + i] = 1.0
        else:
            right[n + i, n + i] = 1.0
    vectors = empty((size, size), np.float64)
    if stable_subspace(left, right, discrete, vectors) != n:
        return False
    upper = empty((1, n, n), np.float64)
    for i in range(n):
        for j in range(n):
            upper[0, i, j] = vectors[i, j]
            x[0, j, i] = vectors[i, n + j]
    return solve_rows(upper, x)


@compiled()
def is_stable(form, discrete):
    """Check by its real Schur form that all eigenvalues of a matrix are stable: within the unit
    circle if `discrete`, else in the open left half plane."""
    n = form.shape[0]
    for i in range(n):
        size = form[i, i]
        if discrete:
            size = abs(size)
            for j in (i - 1, i + 1):
                if 0 <= j < n and form[min(i, j), max(i, j)] != 0:
                    size = np.sqrt(form[i, i] * form[j, j] - form[i, j] * form[j, i])
            size -= 1.0
        if not size < 0:
            return False
    return True


@compiled(counted=True)
def closed_loop(a, b, q, r, discrete, x, closed, residual):
    """closed = C = A - B K with the gain K that is optimal for the cost-to-go x (1, n, n); residual
    = the equation's residual at x, in a form without differences of large terms: if `discrete`
    C' X C + Q + K' R K - X, else C' X + X C + Q + K' R K. False where there is no optimal gain."""
    n, m = b.shape
    weight, gain = empty((1, m, m), np.float64), empty((1, n, m), np.float64)
    costs, half = empty((n, m), np.float64), empty((n, n), np.float64)
    copy_entries(r, weight[0])
    copy_entries(a, closed[0])
    if discrete:
        gemm(1.0, x[0], False, b, False, 0.0, costs)
        gemm(1.0, costs, True, b, False, 1.0, weight[0])
        gemm(1.0, a, True, costs, False, 0.0, gain[0])
    else:
        gemm(1.0, x[0], False, b, False, 0.0, gain[0])
    if not solve_rows(weight, gain):
        return False
    gemm(-1.0, b, False, gain[0], True, 1.0, closed[0])
    gemm(1.0, x[0], False, closed[0], False, 0.0, half)
    gemm(1.0, gain[0], False, r, False, 0.0, costs)
    for i in range(n):
        for j in range(n):
            residual[0, i, j] = q[i, j] + (-x[0, i, j] if discrete else half[i, j] + half[j, i])
    if discrete:
        gemm(1.0, closed[0], True, half, False, 1.0, residual[0])
    gemm(1.0, costs, False, gain[0], True, 1.0, residual[0])
    return True


@compiled(counted=True)
def riccati_step(a, b, q, r, discrete, x, step):
    """step (1, n, n) = Newton's step from x (1, n, n). False where the closed loop is not
    stable."""
    closed = empty(x.shape, x.dtype)
    transposed = empty(x.shape, x.dtype)
    residual = empty(x.shape, x.dtype)
    form = empty(x.shape, x.dtype)
    vectors = empty(x.shape, x.dtype)
    if not closed_loop(a, b, q, r, discrete, x, closed, residual):
        return False
    if not schur(closed, form, vectors) or not is_stable(form[0], discrete):
        return False
    copy_matrices(closed, transposed, True)
    if discrete:
        return stein(transposed, closed, residual, step)
    scale_blocks(-1.0, residual, residual)
    transposed_vectors = empty(x.shape, x.dtype)
    if not schur(transposed, closed, transposed_vectors):
        return False
    return schur_sylvester(closed, transposed_vectors, form, vectors, residual, step, False, False)


@compiled(counted=True)
def riccati(a, b, q, r, discrete, out):
    """out (stack, n, n) = the stabilising solutions, in double precision; q and r are replaced by
    their symmetric parts. False where there is none."""
    stack, n, _ = b.shape
    x = empty((1, n, n), np.float64)
    step = empty((1, n, n), np.float64)
    symmetric_part(q, q)
    symmetric_part(r, r)
    for s in range(stack):
        if not riccati_start(a[s], b[s], q[s], r[s], discrete, x):
            return False
        for _ in range(2):
            symmetric_part(x, x)
            if not riccati_step(a[s], b[s], q[s], r[s], discrete, x, step):
                return False
            for i in range(n):
                for j in range(n):
                    x[0, i, j] += step[0, i, j]
        if not largest_column(step[0]) <= 1e-6 * largest_column(x[0]):
            return False
        symmetric_part(x, out[s : s + 1])
    return True


@compiled(counted=True)
def continuous_riccati(a, b, q, r, out):
    """out (stack, n, n) = the stabilising X with A' X + X A - X B inv(R) B' X + Q = 0. False
    where there is none."""
    real = np.float64
    return riccati(a.astype(real), b.astype(real), q.astype(real), r.astype(real), False, out)


@compiled(counted=True)
def discrete_riccati(a, b, q, r, out):
    """out (stack, n, n) = the stabilising X with A' X A - X - A' X B inv(R + B' X B) B' X A + Q
    = 0. False where there is none."""
    real = np.float64
    return riccati(a.astype(real), b.astype(real), q.astype(real), r.astype(real), True, out)
