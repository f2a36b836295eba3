"""Linear solves, Cholesky factors and what statistics makes of them."""

from __future__ import annotations

import numpy as np
from numba import prange

from tests.benchmarks.specialist.compiled import THREADS, kernel, parallel
from tests.benchmarks.specialist.linear_algebra import (
    add_small,
    call,
    eliminate,
    invert_definite,
    mirror,
    product,
    substitute,
    substitute_transposed,
)

SMALL = 24
"""Rows up to which loops beat the calls of LAPACK."""


@kernel
def solve_loops(A, b, cotangent, by_A, z):  # type: ignore[no-untyped-def]
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
def solve_routines(A, b, cotangent, by_A, z):  # type: ignore[no-untyped-def]
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
def invert(A):  # type: ignore[no-untyped-def]
    """A⁻¹, by Gauss and Jordan for a few rows."""
    n = len(A)
    inverse = A.copy()
    if n > SMALL:
        pivots, work = np.empty(n, np.int32), np.empty(n * 32)
        call("getrf", (n, n, inverse, n, pivots, 0))
        call("getri", (n, inverse, n, pivots, work, n * 32, 0))
        return inverse
    order = np.empty(n, np.int64)
    for k in range(n):
        pivot, size = k, abs(inverse[k, k])
        for i in range(k + 1, n):
            if abs(inverse[i, k]) > size:
                pivot, size = i, abs(inverse[i, k])
        order[k] = pivot
        if pivot != k:
            for j in range(n):
                inverse[k, j], inverse[pivot, j] = inverse[pivot, j], inverse[k, j]
        factor, top = 1.0 / inverse[k, k], inverse[k]
        top[k] = 1.0
        for j in range(n):
            top[j] *= factor
        for i in range(n):
            if i != k:
                row, factor = inverse[i], inverse[i, k]
                row[k] = 0.0
                for j in range(n):
                    row[j] -= factor * top[j]
    for k in range(n - 1, -1, -1):
        if order[k] != k:
            for i in range(n):
                inverse[i, k], inverse[i, order[k]] = inverse[i, order[k]], inverse[i, k]
    return inverse


@kernel
def solve_jacobian_rows(inverse, x, out):  # type: ignore[no-untyped-def]
    n = len(x)
    for i in range(len(out)):
        for j in range(n):
            row, factor = out[i, j], -inverse[i, j]
            for k in range(n):
                row[k] = factor * x[k]


@kernel
def inverse_and_solution(A, b, x):  # type: ignore[no-untyped-def]
    inverse = invert(A)
    for i in range(len(b)):
        total = 0.0
        for j in range(len(b)):
            total += inverse[i, j] * b[j]
        x[i] = total
    return inverse


@kernel
def solve_jacobian_whole(A, b, out):  # type: ignore[no-untyped-def]
    x = np.empty_like(b)
    inverse = inverse_and_solution(A, b, x)
    solve_jacobian_rows(inverse, x, out)


@parallel
def solve_jacobian_parts(parts, A, b, out):  # type: ignore[no-untyped-def]
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
    if THREADS > 1 and out.size > 20_000:
        solve_jacobian_parts(THREADS, A, b, out)
    else:
        solve_jacobian_whole(A, b, out)
    return out


@kernel
def nll_loops(S, C, out):  # type: ignore[no-untyped-def]
    n = len(S)
    inverse, half = S.copy(), np.zeros_like(S)
    invert_definite(inverse)
    add_small(inverse, C, half)
    for i in range(n):
        for j in range(n):
            half[i, j] = -half[i, j]
            out[i, j] = inverse[i, j]
    add_small(half, inverse, out)


@kernel
def nll_routines(S, C, out):  # type: ignore[no-untyped-def]
    """Of the last product, which is symmetric, the blocks below the diagonal."""
    n = len(S)
    inverse, half = S.copy(), np.empty_like(S)
    call("potrf U", (n, inverse, n, 0))
    call("potri U", (n, inverse, n, 0))
    mirror(inverse)
    product(1.0, inverse, C, 0.0, half)
    out[:] = inverse
    step = max(48, n // 4)
    for top in range(0, n, step):
        bottom = min(n, top + step)
        call(
            "gemm NN",
            (bottom, bottom - top, n, -1.0, inverse, n, half[top:bottom], n, 1.0, out[top:], n),
        )
    mirror(out)


def nll_gradient(S: np.ndarray, C: np.ndarray) -> np.ndarray:
    """S, C and the result: (n, n)."""
    out = np.empty(S.shape, S.dtype)
    (nll_loops if len(S) <= 12 else nll_routines)(S, C, out)
    return out


@kernel
def cholesky_routines(S, cotangent, out):  # type: ignore[no-untyped-def]
    """L⁻ᵀ M L⁻¹, where M is half of the lower triangle of Lᵀ tril(cotangent), mirrored."""
    n = len(S)
    L = S.copy()
    call("potrf U", (n, L, n, 0))
    for i in range(n):
        out[i, : i + 1] = cotangent[i, : i + 1]
        out[i, i + 1 :] = 0.0
    call("trmm RUTN", (n, n, 0.5, L, n, out, n))
    mirror(out)
    call("trsm LUNN", (n, n, 1.0, L, n, out, n))
    call("trsm RUTN", (n, n, 1.0, L, n, out, n))


@kernel
def cholesky_loops(S, cotangent, out):  # type: ignore[no-untyped-def]
    """With the inverse W of L and the lower triangle M, both by rows: Wᵀ M W."""
    n = len(S)
    L, W, M = S.copy(), np.zeros_like(S), np.zeros_like(S)
    for i in range(n):
        for j in range(i + 1):
            total = L[i, j]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            L[i, j] = total / L[j, j] if j < i else np.sqrt(total)
    for i in range(n):
        scale = 1.0 / L[i, i]
        for k in range(i):
            factor = -L[i, k] * scale
            for j in range(k + 1):
                W[i, j] += factor * W[k, j]
        W[i, i] = scale
        for k in range(i + 1):
            factor = 0.5 * L[i, k]
            for j in range(k + 1):
                M[k, j] += factor * cotangent[i, j]
    L[:] = 0.0
    for i in range(n):
        for j in range(i):
            M[j, i] = M[i, j]
    add_small(M, W, L)
    out[:] = 0.0
    for k in range(n):
        for i in range(k + 1):
            factor = W[k, i]
            for j in range(n):
                out[i, j] += factor * L[k, j]


def cholesky_vjp(S: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
    """S, cotangent and the result: (n, n)."""
    out = np.empty(S.shape)
    (cholesky_loops if len(S) <= 16 else cholesky_routines)(S, cotangent, out)
    return out


KERNELS = {
    "solve(A, b) vjp": solve_vjp,
    "solve(A, b) by A jacobian": solve_jacobian,
    "logdet(S) + tr(S⁻¹ C) gradient": nll_gradient,
    "cholesky(S) vjp": cholesky_vjp,
}
