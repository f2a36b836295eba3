"""The Kalman update: x + P Hᵀ v with v = (H P Hᵀ + R)⁻¹ (z - H x)."""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np
from numba import prange

from tests.benchmarks.specialist.compiled import THREADS, inlined, kernel, parallel
from tests.benchmarks.specialist.linear_algebra import (
    call,
    product,
    product_by_transpose,
)

LANES = 16
"""Samples at a time."""


@inlined
def dot(a, b):
    """Return the inner product of six entries."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3] + a[4] * b[4] + a[5] * b[5]


@inlined
def lane_of(a, s):
    """Six entries of one lane."""
    return (
        *(a[s], a[s + LANES], a[s + 2 * LANES]),
        *(a[s + 3 * LANES], a[s + 4 * LANES], a[s + 5 * LANES]),
    )


@inlined
def six(row):
    return row[0], row[1], row[2], row[3], row[4], row[5]


@kernel
def update_lanes(a, H, R, o):
    """The vjp of LANES samples with 6 states and 3 measurements: a[LANES k + lane] is entry k of
    P's lower triangle, x, z and the cotangent; o has the rest of the cotangent, v H and u, with
    which the results are rest, rest (v H)ᵀ and u."""
    h0, h1, h2 = six(H[0]), six(H[1]), six(H[2])
    q00, q10, q11, q20, q21, q22 = R[0, 0], R[1, 0], R[1, 1], R[2, 0], R[2, 1], R[2, 2]
    n = LANES
    for s in range(LANES):
        p00, p10, p11, p20, p21, p22 = lane_of(a, s)
        p30, p31, p32, p33, p40, p41 = lane_of(a, s + 6 * n)
        p42, p43, p44, p50, p51, p52 = lane_of(a, s + 12 * n)
        p53, p54, p55 = a[s + 18 * n], a[s + 19 * n], a[s + 20 * n]
        x, y = lane_of(a, s + 21 * n), lane_of(a, s + 30 * n)
        P0, P1 = (p00, p10, p20, p30, p40, p50), (p10, p11, p21, p31, p41, p51)
        P2, P3 = (p20, p21, p22, p32, p42, p52), (p30, p31, p32, p33, p43, p53)
        P4, P5 = (p40, p41, p42, p43, p44, p54), (p50, p51, p52, p53, p54, p55)
        # the rows of H P
        k0 = dot(P0, h0), dot(P1, h0), dot(P2, h0), dot(P3, h0), dot(P4, h0), dot(P5, h0)
        k1 = dot(P0, h1), dot(P1, h1), dot(P2, h1), dot(P3, h1), dot(P4, h1), dot(P5, h1)
        k2 = dot(P0, h2), dot(P1, h2), dot(P2, h2), dot(P3, h2), dot(P4, h2), dot(P5, h2)
        # H P Hᵀ + R and its adjugate
        s00, s10, s11 = q00 + dot(k0, h0), q10 + dot(k1, h0), q11 + dot(k1, h1)
        s20, s21, s22 = q20 + dot(k2, h0), q21 + dot(k2, h1), q22 + dot(k2, h2)
        c00, c10, c20 = s11 * s22 - s21 * s21, s20 * s21 - s10 * s22, s10 * s21 - s11 * s20
        c11, c21, c22 = s00 * s22 - s20 * s20, s10 * s20 - s00 * s21, s00 * s11 - s10 * s10
        over = 1.0 / (s00 * c00 + s10 * c10 + s20 * c20)
        e0, e1 = (a[s + 27 * n] - dot(h0, x)) * over, (a[s + 28 * n] - dot(h1, x)) * over
        e2 = (a[s + 29 * n] - dot(h2, x)) * over
        f0, f1, f2 = dot(k0, y) * over, dot(k1, y) * over, dot(k2, y) * over
        v0, v1 = c00 * e0 + c10 * e1 + c20 * e2, c10 * e0 + c11 * e1 + c21 * e2
        v2 = c20 * e0 + c21 * e1 + c22 * e2
        u0, u1 = c00 * f0 + c10 * f1 + c20 * f2, c10 * f0 + c11 * f1 + c21 * f2
        u2 = c20 * f0 + c21 * f1 + c22 * f2
        o[s + 12 * n], o[s + 13 * n], o[s + 14 * n] = u0, u1, u2
        o[s] = y[0] - u0 * h0[0] - u1 * h1[0] - u2 * h2[0]
        o[s + n] = y[1] - u0 * h0[1] - u1 * h1[1] - u2 * h2[1]
        o[s + 2 * n] = y[2] - u0 * h0[2] - u1 * h1[2] - u2 * h2[2]
        o[s + 3 * n] = y[3] - u0 * h0[3] - u1 * h1[3] - u2 * h2[3]
        o[s + 4 * n] = y[4] - u0 * h0[4] - u1 * h1[4] - u2 * h2[4]
        o[s + 5 * n] = y[5] - u0 * h0[5] - u1 * h1[5] - u2 * h2[5]
        o[s + 6 * n] = v0 * h0[0] + v1 * h1[0] + v2 * h2[0]
        o[s + 7 * n] = v0 * h0[1] + v1 * h1[1] + v2 * h2[1]
        o[s + 8 * n] = v0 * h0[2] + v1 * h1[2] + v2 * h2[2]
        o[s + 9 * n] = v0 * h0[3] + v1 * h1[3] + v2 * h2[3]
        o[s + 10 * n] = v0 * h0[4] + v1 * h1[4] + v2 * h2[4]
        o[s + 11 * n] = v0 * h0[5] + v1 * h1[5] + v2 * h2[5]


@kernel
def update_samples(x, P, H, R, z, cotangent, by_x, by_P, by_z):
    """x, cotangent, by_x: (batch, 6), P, by_P: (batch, 6, 6), z, by_z: (batch, 3)."""
    count = len(x)
    a, o = np.ones(36 * LANES), np.empty(15 * LANES)
    for first in range(0, count, LANES):
        lanes = min(LANES, count - first)
        for s in range(lanes):
            sample, place = first + s, s
            for i in range(6):
                for j in range(i + 1):
                    a[place] = P[sample, i, j]
                    place += LANES
            for i in range(6):
                a[s + (21 + i) * LANES] = x[sample, i]
                a[s + (30 + i) * LANES] = cotangent[sample, i]
            for i in range(3):
                a[s + (27 + i) * LANES] = z[sample, i]
        update_lanes(a, H, R, o)
        for s in range(lanes):
            sample = first + s
            rest, back = lane_of(o, s), lane_of(o, s + 6 * LANES)
            for i in range(6):
                by_x[sample, i] = rest[i]
                for j in range(6):
                    by_P[sample, i, j] = rest[i] * back[j]
            for i in range(3):
                by_z[sample, i] = o[s + (12 + i) * LANES]


@parallel
def update_parts(parts, x, P, H, R, z, cotangent, by_x, by_P, by_z):
    n = len(x)
    for part in prange(parts):
        s, e = n * part // parts, n * (part + 1) // parts
        update_samples(
            x[s:e], P[s:e], H, R, z[s:e], cotangent[s:e], by_x[s:e], by_P[s:e], by_z[s:e]
        )


@kernel
def update_loops(x, P, H, R, z, cotangent, rest, by_P, u):
    """One sample: H P, then the factor L of H P Hᵀ + R by rows, and v and u by it."""
    m, n = H.shape
    gain, L, v = np.zeros((m, n)), np.empty((m, m)), np.empty(m)
    for k in range(m):
        row, h, error, inner = gain[k], H[k], z[k], 0.0
        for i in range(n):
            factor, source = h[i], P[i]
            for j in range(n):
                row[j] += factor * source[j]
        for j in range(n):
            error -= h[j] * x[j]
            inner += row[j] * cotangent[j]
        for i in range(k + 1):
            total, other = R[k, i], H[i]
            for j in range(n):
                total += row[j] * other[j]
            for j in range(i):
                total -= L[k, j] * L[i, j]
            L[k, i] = total / L[i, i] if i < k else np.sqrt(total)
        for j in range(k):
            error -= L[k, j] * v[j]
            inner -= L[k, j] * u[j]
        v[k], u[k] = error / L[k, k], inner / L[k, k]
    for k in range(m - 1, -1, -1):
        first, second = v[k], u[k]
        for j in range(k + 1, m):
            first -= L[j, k] * v[j]
            second -= L[j, k] * u[j]
        v[k], u[k] = first / L[k, k], second / L[k, k]
    outer(H, v, u, cotangent, gain[0], rest, by_P)


@kernel
def outer(H, v, u, cotangent, back, rest, by_P):
    """rest = cotangent - Hᵀ u, and rest (Hᵀ v)ᵀ; back is memory for Hᵀ v."""
    m, n = H.shape
    rest[:] = cotangent
    back[:] = 0.0
    for k in range(m):
        h, first, second = H[k], v[k], u[k]
        for j in range(n):
            back[j] += first * h[j]
            rest[j] -= second * h[j]
    for i in range(n):
        row, factor = by_P[i], rest[i]
        for j in range(n):
            row[j] = factor * back[j]


@kernel
def update_routines(x, P, H, R, z, cotangent, rest, by_P, u):
    m, n = H.shape
    gain, L, both = np.empty((m, n)), R.copy(), np.empty((2, m))
    product(1.0, H, P, 0.0, gain)
    product_by_transpose(1.0, gain, H, 1.0, L)
    call("potrf U", (m, L, m, 0))
    for k in range(m):
        error, inner = z[k], 0.0
        for j in range(n):
            error -= H[k, j] * x[j]
            inner += gain[k, j] * cotangent[j]
        both[0, k], both[1, k] = error, inner
    call("potrs U", (m, 2, L, m, both, m, 0))
    u[:] = both[1]
    outer(H, both[0], u, cotangent, gain[0], rest, by_P)


def kalman_vjp(
    x: np.ndarray,
    P: np.ndarray,
    H: np.ndarray,
    R: np.ndarray,
    z: np.ndarray,
    cotangent: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """x, cotangent: (n,), P: (n, n), H: (m, n), R: (m, m), z: (m,); the results as x, P, z."""
    outs = np.empty(x.shape), np.empty(P.shape), np.empty(z.shape)
    (update_loops if len(z) <= 8 else update_routines)(x, P, H, R, z, cotangent, *outs)
    return outs


def kalman_vjps(
    x: np.ndarray,
    P: np.ndarray,
    H: np.ndarray,
    R: np.ndarray,
    z: np.ndarray,
    cotangent: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """x, cotangent: (batch, 6), P: (batch, 6, 6), H: (3, 6), R: (3, 3), z: (batch, 3)."""
    outs = np.empty(x.shape), np.empty(P.shape), np.empty(z.shape)
    if THREADS > 1 and len(x) >= 1000:
        update_parts(THREADS, x, P, H, R, z, cotangent, *outs)
    else:
        update_samples(x, P, H, R, z, cotangent, *outs)
    return outs


KERNELS = {
    "Kalman update vjp": kalman_vjp,
    "Kalman update, literal sizes vjp": kalman_vjp,
    "Kalman updates vjp": kalman_vjps,
    "Kalman updates, literal sizes vjp": kalman_vjps,
}
