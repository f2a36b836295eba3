"""Batches of matrices of a few rows."""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np
from numba import prange

from tests.benchmarks.specialist.compiled import THREADS, inlined, kernel, parallel
from tests.benchmarks.specialist.linear_algebra import (
    eliminate,
    substitute,
    substitute_transposed,
)

LANES = 16
"""Samples side by side."""


@inlined
def three(row):
    return row[0], row[1], row[2]


@inlined
def dot(a, b):
    """Return the inner product of three entries."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@kernel
def square_samples(X, cotangent, out):
    """cotangent Xᵀ + Xᵀ cotangent, each (batch, 3, 3)."""
    for s in range(len(X)):
        a, b, c = three(X[s, 0]), three(X[s, 1]), three(X[s, 2])
        d, e, f = three(cotangent[s, 0]), three(cotangent[s, 1]), three(cotangent[s, 2])
        g, h, i = (d[0], e[0], f[0]), (d[1], e[1], f[1]), (d[2], e[2], f[2])
        j, k, m = (a[0], b[0], c[0]), (a[1], b[1], c[1]), (a[2], b[2], c[2])
        out[s, 0, 0] = dot(d, a) + dot(j, g)
        out[s, 0, 1] = dot(d, b) + dot(j, h)
        out[s, 0, 2] = dot(d, c) + dot(j, i)
        out[s, 1, 0] = dot(e, a) + dot(k, g)
        out[s, 1, 1] = dot(e, b) + dot(k, h)
        out[s, 1, 2] = dot(e, c) + dot(k, i)
        out[s, 2, 0] = dot(f, a) + dot(m, g)
        out[s, 2, 1] = dot(f, b) + dot(m, h)
        out[s, 2, 2] = dot(f, c) + dot(m, i)


@parallel
def square_parts(parts, X, cotangent, out):
    n = len(X)
    for part in prange(parts):
        s, e = n * part // parts, n * (part + 1) // parts
        square_samples(X[s:e], cotangent[s:e], out[s:e])


def square_vjp(X: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
    """All: (batch, 3, 3)."""
    out = np.empty(X.shape)
    if THREADS > 1 and len(X) >= 3000:
        square_parts(THREADS, X, cotangent, out)
    else:
        square_samples(X, cotangent, out)
    return out


@inlined
def cross(a, b):
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@kernel
def solve_samples(A, b, cotangent, by_A, by_b):
    """Solve by Cramer's rule: the columns of A⁻¹ are cross products of two of its rows p, q, r over
    the determinant. A, by_A: (batch, 3, 3), the others: (batch, 3)."""
    for s in range(len(b)):
        p, q, r = three(A[s, 0]), three(A[s, 1]), three(A[s, 2])
        u, v, w = cross(q, r), cross(r, p), cross(p, q)
        over = 1.0 / dot(p, u)
        f, g, h = b[s, 0] * over, b[s, 1] * over, b[s, 2] * over
        x = u[0] * f + v[0] * g + w[0] * h
        y = u[1] * f + v[1] * g + w[1] * h
        z = u[2] * f + v[2] * g + w[2] * h
        back = three(cotangent[s])
        k, m, n = dot(u, back) * over, dot(v, back) * over, dot(w, back) * over
        by_b[s, 0], by_b[s, 1], by_b[s, 2] = k, m, n
        by_A[s, 0, 0], by_A[s, 0, 1], by_A[s, 0, 2] = -k * x, -k * y, -k * z
        by_A[s, 1, 0], by_A[s, 1, 1], by_A[s, 1, 2] = -m * x, -m * y, -m * z
        by_A[s, 2, 0], by_A[s, 2, 1], by_A[s, 2, 2] = -n * x, -n * y, -n * z


@parallel
def solve_parts(parts, A, b, cotangent, by_A, by_b):
    n = len(b)
    for part in prange(parts):
        s, e = n * part // parts, n * (part + 1) // parts
        solve_samples(A[s:e], b[s:e], cotangent[s:e], by_A[s:e], by_b[s:e])


def solve_vjp(A: np.ndarray, b: np.ndarray, cotangent: np.ndarray) -> tuple[np.ndarray, ...]:
    """A: (batch, 3, 3), b, cotangent: (batch, 3); the results as A and b."""
    outs = np.empty(A.shape), np.empty(b.shape)
    if THREADS > 1 and len(b) >= 3000:
        solve_parts(THREADS, A, b, cotangent, *outs)
    else:
        solve_samples(A, b, cotangent, *outs)
    return outs


@kernel
def many_samples(A, b, cotangent, by_A, by_b):
    """Solve with any number of rows, by elimination in by_A, which is written last."""
    count, n = b.shape
    x, order = np.empty(n), np.empty(n, np.int64)
    for s in range(count):
        factors, z = by_A[s], by_b[s]
        for i in range(n):
            x[i], z[i] = b[s, i], cotangent[s, i]
            for j in range(n):
                factors[i, j] = A[s, i, j]
        eliminate(factors, order)
        substitute(factors, order, x)
        substitute_transposed(factors, order, z)
        for i in range(n):
            row, factor = factors[i], -z[i]
            for j in range(n):
                row[j] = factor * x[j]


@parallel
def many_parts(parts, A, b, cotangent, by_A, by_b):
    n = len(b)
    for part in prange(parts):
        s, e = n * part // parts, n * (part + 1) // parts
        many_samples(A[s:e], b[s:e], cotangent[s:e], by_A[s:e], by_b[s:e])


def many_vjp(A: np.ndarray, b: np.ndarray, cotangent: np.ndarray) -> tuple[np.ndarray, ...]:
    """A: (batch, n, n), b, cotangent: (batch, n); the results as A and b."""
    outs = np.empty(A.shape), np.empty(b.shape)
    if THREADS > 1 and A.size > 3000:
        many_parts(THREADS, A, b, cotangent, *outs)
    else:
        many_samples(A, b, cotangent, *outs)
    return outs


@inlined
def symmetric(a, s):
    """The lower triangle of one lane."""
    n = LANES
    return (
        *(a[s], a[s + n], a[s + 2 * n], a[s + 3 * n], a[s + 4 * n], a[s + 5 * n]),
        *(a[s + 6 * n], a[s + 7 * n], a[s + 8 * n], a[s + 9 * n]),
    )


@inlined
def dot4(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3]


@kernel
def nll_lanes(a, o):
    """W - W C W with the inverse W of S, by its adjugate: a has the lower triangles of S and C,
    o that of the result."""
    n = LANES
    for s in range(LANES):
        s00, s10, s11, s20, s21, s22, s30, s31, s32, s33 = symmetric(a, s)
        # the minors of the first two rows and of the last two
        f0, f1, f2 = s00 * s11 - s10 * s10, s00 * s21 - s20 * s10, s00 * s31 - s30 * s10
        f3, f4, f5 = s10 * s21 - s20 * s11, s10 * s31 - s30 * s11, s20 * s31 - s30 * s21
        g5, g4, g3 = s22 * s33 - s32 * s32, s21 * s33 - s31 * s32, s21 * s32 - s31 * s22
        g2, g1, g0 = s20 * s33 - s30 * s32, s20 * s32 - s30 * s22, s20 * s31 - s30 * s21
        over = 1.0 / (f0 * g5 - f1 * g4 + f2 * g3 + f3 * g2 - f4 * g1 + f5 * g0)
        w00 = (s11 * g5 - s21 * g4 + s31 * g3) * over
        w10 = (s21 * g2 - s10 * g5 - s31 * g1) * over
        w11 = (s00 * g5 - s20 * g2 + s30 * g1) * over
        w20 = (s10 * g4 - s11 * g2 + s31 * g0) * over
        w21 = (s10 * g2 - s00 * g4 - s30 * g0) * over
        w30 = (s11 * g1 - s10 * g3 - s21 * g0) * over
        w31 = (s00 * g3 - s10 * g1 + s20 * g0) * over
        w22 = (s30 * f4 - s31 * f2 + s33 * f0) * over
        w32 = (s31 * f1 - s30 * f3 - s32 * f0) * over
        w33 = (s20 * f3 - s21 * f1 + s22 * f0) * over
        W0, W1 = (w00, w10, w20, w30), (w10, w11, w21, w31)
        W2, W3 = (w20, w21, w22, w32), (w30, w31, w32, w33)
        c00, c10, c11, c20, c21, c22, c30, c31, c32, c33 = symmetric(a, s + 10 * n)
        C0, C1 = (c00, c10, c20, c30), (c10, c11, c21, c31)
        C2, C3 = (c20, c21, c22, c32), (c30, c31, c32, c33)
        M0 = dot4(W0, C0), dot4(W0, C1), dot4(W0, C2), dot4(W0, C3)
        M1 = dot4(W1, C0), dot4(W1, C1), dot4(W1, C2), dot4(W1, C3)
        M2 = dot4(W2, C0), dot4(W2, C1), dot4(W2, C2), dot4(W2, C3)
        M3 = dot4(W3, C0), dot4(W3, C1), dot4(W3, C2), dot4(W3, C3)
        o[s] = w00 - dot4(M0, W0)
        o[s + n], o[s + 2 * n] = w10 - dot4(M1, W0), w11 - dot4(M1, W1)
        o[s + 3 * n], o[s + 4 * n] = w20 - dot4(M2, W0), w21 - dot4(M2, W1)
        o[s + 5 * n] = w22 - dot4(M2, W2)
        o[s + 6 * n], o[s + 7 * n] = w30 - dot4(M3, W0), w31 - dot4(M3, W1)
        o[s + 8 * n], o[s + 9 * n] = w32 - dot4(M3, W2), w33 - dot4(M3, W3)


@kernel
def nll_samples(S, C, out):
    count = len(S)
    a, o = np.ones(20 * LANES), np.empty(10 * LANES)
    for first in range(0, count, LANES):
        lanes = min(LANES, count - first)
        for s in range(lanes):
            place = s
            for i in range(4):
                for j in range(i + 1):
                    a[place], a[place + 10 * LANES] = S[first + s, i, j], C[first + s, i, j]
                    place += LANES
        nll_lanes(a, o)
        for s in range(lanes):
            place = s
            for i in range(4):
                for j in range(i + 1):
                    out[first + s, i, j] = out[first + s, j, i] = o[place]
                    place += LANES


@parallel
def nll_parts(parts, S, C, out):
    n = len(S)
    for part in prange(parts):
        s, e = n * part // parts, n * (part + 1) // parts
        nll_samples(S[s:e], C[s:e], out[s:e])


def nll_gradient(S: np.ndarray, C: np.ndarray) -> np.ndarray:
    """All: (batch, 4, 4)."""
    out = np.empty(S.shape)
    if THREADS > 1 and len(S) >= 1500:
        nll_parts(THREADS, S, C, out)
    else:
        nll_samples(S, C, out)
    return out


KERNELS = {
    "X X, batches of 3×3 vjp": square_vjp,
    "solve(A, b), batches of 3×3 vjp": solve_vjp,
    "logdet(S) + tr(S⁻¹ C), batches of 4×4 gradient": nll_gradient,
    "solve(B, c), batches of n×n vjp": many_vjp,
}
