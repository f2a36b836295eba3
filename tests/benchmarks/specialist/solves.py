"""Linear solves, Cholesky factors and what statistics makes of them."""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np
from numba import prange

from tests.benchmarks.specialist.compiled import THREADS, kernel, parallel
from tests.benchmarks.specialist.linear_algebra import (
    call,
    eliminate,
    invert,
    mirror,
    product,
    product_of_transpose,
    substitute,
    substitute_transposed,
)
from tests.benchmarks.specialist.triangular import (
    add_symmetric,
    between,
    between_transposed,
    factor_block,
    factorise,
    lower_square,
    solve,
)

SMALL = 24
"""Rows up to which loops beat the calls of LAPACK."""


@kernel
def solve_loops(A, b, cotangent, by_A, z):
    n = len(b)
    factors, x, order = A.copy(), b.copy(), np.empty(n, np.int64)
    eliminate(factors, order)
    substitute(factors, order, x)
    z[:] = cotangent
    substitute_transposed(factors, order, z)
    for i in range(n):
        row, factor = by_A[i], -z[i]
        for j in range(n):
            row[j] = factor * x[j]


@kernel
def solve_routines(A, b, cotangent, by_A, z):
    """by_A holds the factors until it is written."""
    n = len(b)
    x, pivots = b.copy(), np.empty(n, np.int32)
    by_A[:] = A
    z[:] = cotangent
    call("getrf", (n, n, by_A, n, pivots, 0))
    call("getrs T", (n, 1, by_A, n, pivots, x, n, 0))
    call("getrs N", (n, 1, by_A, n, pivots, z, n, 0))
    for i in range(n):
        row, factor = by_A[i], -z[i]
        for j in range(n):
            row[j] = factor * x[j]


def solve_vjp(A: np.ndarray, b: np.ndarray, cotangent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A: (n, n), b, cotangent: (n,); the results as A and b."""
    by_A, z = np.empty(A.shape, A.dtype), np.empty(b.shape, b.dtype)
    (solve_loops if len(b) <= SMALL else solve_routines)(A, b, cotangent, by_A, z)
    return by_A, z


@kernel
def solve_jacobian_rows(inverse, x, out):
    n = len(x)
    for i in range(len(out)):
        for j in range(n):
            row, factor = out[i, j], -inverse[i, j]
            for k in range(n):
                row[k] = factor * x[k]


@kernel
def inverse_and_solution(A, b, x):
    inverse = invert(A)
    for i in range(len(b)):
        total = 0.0
        for j in range(len(b)):
            total += inverse[i, j] * b[j]
        x[i] = total
    return inverse


@kernel
def solve_jacobian_whole(A, b, out):
    x = np.empty_like(b)
    inverse = inverse_and_solution(A, b, x)
    solve_jacobian_rows(inverse, x, out)


@parallel
def solve_jacobian_parts(parts, A, b, out):
    n = len(b)
    x = np.empty_like(b)
    inverse = inverse_and_solution(A, b, x)
    for part in prange(parts):
        start, stop = n * part // parts, n * (part + 1) // parts
        solve_jacobian_rows(inverse[start:stop], x, out[start:stop])


def solve_jacobian(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A: (n, n), b: (n,); the result: (n, n, n)."""
    n = len(b)
    out = np.empty((n, n, n))
    if THREADS > 1 and out.size > 100_000:
        solve_jacobian_parts(THREADS, A, b, out)
    else:
        solve_jacobian_whole(A, b, out)
    return out


@kernel
def nll_inverse(S, C, out):
    n = len(S)
    L, W = S.copy(), np.empty_like(S)
    if n <= 24:
        factor_block(L, W)
    else:
        inverses = factorise(L)
        for i in range(n):
            W[i] = 0.0
            W[i, i] = 1.0
        solve(L, inverses, W, False)
    inverse, half = np.empty_like(S), L
    lower_square(W, inverse)
    product(-1.0, inverse, C, 0.0, half)
    for i in range(n):
        for j in range(n):
            out[i, j] = inverse[i, j]
    add_symmetric(half, inverse, out)


@kernel
def nll_blocks(S, C, out):
    """S⁻¹ (S - C) S⁻¹, in which no inverse is needed."""
    n = len(S)
    L, M = S.copy(), np.empty_like(S)
    for i in range(n):
        for j in range(n):
            M[i, j] = S[i, j] - C[i, j]
    inverses = factorise(L)
    between(L, inverses, M, out)
    between_transposed(L, inverses, M, out)


def nll_gradient(S: np.ndarray, C: np.ndarray) -> np.ndarray:
    """S, C and the result: (n, n)."""
    out = np.empty(S.shape, S.dtype)
    (nll_inverse if len(S) <= 110 else nll_blocks)(S, C, out)
    return out


@kernel
def cholesky_blocks(S, cotangent, out):
    """L⁻ᵀ M L⁻¹, where M is half of the lower triangle of Lᵀ tril(cotangent), mirrored; of that
    product the blocks from the diagonal on."""
    n = len(S)
    L, M, lower = S.copy(), np.empty_like(S), np.empty_like(S)
    inverses = factorise(L)
    for i in range(n):
        for j in range(i + 1):
            lower[i, j] = cotangent[i, j]
        for j in range(i + 1, n):
            lower[i, j] = L[i, j] = 0.0
    step = max(32, n // 8)
    for top in range(0, n, step):
        rows = min(step, n - top)
        below, panel, part = lower[top:], L[top:, top:], M[top:]
        call(
            "gemm NT",
            (top + rows, rows, n - top, 0.5, below, n, panel, n, 0.0, part, n),
        )
    mirror(M)
    between_transposed(L, inverses, M, out)


@kernel
def cholesky_inverse(S, cotangent, out):
    """Solve with the inverse of L."""
    n = len(S)
    L, W, M = S.copy(), np.empty_like(S), np.zeros_like(S)
    factor_block(L, W)
    for i in range(n):
        for k in range(i + 1):
            factor, row = 0.5 * L[i, k], M[k]
            for j in range(k + 1):
                row[j] += factor * cotangent[i, j]
    for i in range(n):
        for j in range(i):
            M[j, i] = M[i, j]
    product(1.0, M, W, 0.0, L)
    product_of_transpose(1.0, W, L, 0.0, out)


def cholesky_vjp(S: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
    """S, cotangent and the result: (n, n)."""
    out = np.empty(S.shape)
    (cholesky_inverse if len(S) <= 30 else cholesky_blocks)(S, cotangent, out)
    return out


KERNELS = {
    "solve(A, b) vjp": solve_vjp,
    "solve(A, b) by A jacobian": solve_jacobian,
    "logdet(S) + tr(S⁻¹ C) gradient": nll_gradient,
    "cholesky(S) vjp": cholesky_vjp,
}
