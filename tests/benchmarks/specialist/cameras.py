"""The camera's projection: straight code, over lanes of samples that lie side by side."""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np
from numba import prange

from tests.benchmarks.specialist.compiled import THREADS, kernel, parallel
from tests.benchmarks.specialist.elementary import vsincos

LANES = 16
"""Samples at a time."""


@kernel
def project(a, o):
    """The Jacobians of LANES samples: a[LANES k + lane] is input k (w, t, lens, p), and so are
    the results in o, (2, 3) by each input.

    The rotation by its vector after G. Gallego and A. Yezzi (2015), with its columns written as
    cross products; distortion and division by the chain rule.
    """
    n = LANES
    for s in range(LANES):
        w0, w1, w2 = a[s], a[s + n], a[s + 2 * n]
        focal, k1, k2 = a[s + 6 * n], a[s + 7 * n], a[s + 8 * n]
        p0, p1, p2 = a[s + 9 * n], a[s + 10 * n], a[s + 11 * n]
        square = w0 * w0 + w1 * w1 + w2 * w2
        angle = np.sqrt(square)
        sine, cosine = vsincos(angle)
        over = 1.0 / square
        f, g = sine * angle * over, (1.0 - cosine) * over
        # R = cosine I + f [w] + g w wᵀ
        r00, r11, r22 = cosine + g * w0 * w0, cosine + g * w1 * w1, cosine + g * w2 * w2
        g01, g02, g12 = g * w0 * w1, g * w0 * w2, g * w1 * w2
        r01, r10 = g01 - f * w2, g01 + f * w2
        r02, r20 = g02 + f * w1, g02 - f * w1
        r12, r21 = g12 - f * w0, g12 + f * w0
        # R p, and the same moved by t
        m0 = r00 * p0 + r01 * p1 + r02 * p2
        m1 = r10 * p0 + r11 * p1 + r12 * p2
        m2 = r20 * p0 + r21 * p1 + r22 * p2
        depth = -1.0 / (m2 + a[s + 5 * n])
        x, y = (m0 + a[s + 3 * n]) * depth, (m1 + a[s + 4 * n]) * depth
        s2 = x * x + y * y
        stretch = 1.0 + s2 * (k1 + s2 * k2)
        slope = 2.0 * focal * (k1 + 2.0 * k2 * s2)
        fx, fy, scale = slope * x, slope * y, focal * stretch
        b00, b01, b11 = scale + fx * x, fx * y, scale + fy * y
        # by t
        t00, t01 = b00 * depth, b01 * depth
        t10, t11 = t01, b11 * depth
        t02, t12 = t00 * x + t01 * y, t10 * x + t11 * y
        o[s + 6 * n], o[s + 7 * n], o[s + 8 * n] = t00, t01, t02
        o[s + 9 * n], o[s + 10 * n], o[s + 11 * n] = t10, t11, t12
        # by lens
        o[s + 12 * n], o[s + 15 * n] = stretch * x, stretch * y
        o[s + 13 * n], o[s + 16 * n] = focal * s2 * x, focal * s2 * y
        o[s + 14 * n], o[s + 17 * n] = focal * s2 * s2 * x, focal * s2 * s2 * y
        # by p
        u0 = t00 * r00 + t01 * r10 + t02 * r20
        u1 = t00 * r01 + t01 * r11 + t02 * r21
        u2 = t00 * r02 + t01 * r12 + t02 * r22
        v0 = t10 * r00 + t11 * r10 + t12 * r20
        v1 = t10 * r01 + t11 * r11 + t12 * r21
        v2 = t10 * r02 + t11 * r12 + t12 * r22
        o[s + 18 * n], o[s + 19 * n], o[s + 20 * n] = u0, u1, u2
        o[s + 21 * n], o[s + 22 * n], o[s + 23 * n] = v0, v1, v2
        # by w, -u [p] B with B = (w wᵀ + (Rᵀ - I) [w]) / |w|²: -u [p] is p × u
        c0, c1, c2 = p1 * u2 - p2 * u1, p2 * u0 - p0 * u2, p0 * u1 - p1 * u0
        e0, e1, e2 = p1 * v2 - p2 * v1, p2 * v0 - p0 * v2, p0 * v1 - p1 * v0
        # Rᵀ - I, times [w]
        d00, d11, d22 = r00 - 1.0, r11 - 1.0, r22 - 1.0
        h00 = (w0 * w0 + r10 * w2 - r20 * w1) * over
        h01 = (w0 * w1 - d00 * w2 + r20 * w0) * over
        h02 = (w0 * w2 + d00 * w1 - r10 * w0) * over
        h10 = (w1 * w0 + d11 * w2 - r21 * w1) * over
        h11 = (w1 * w1 - r01 * w2 + r21 * w0) * over
        h12 = (w1 * w2 + r01 * w1 - d11 * w0) * over
        h20 = (w2 * w0 + r12 * w2 - d22 * w1) * over
        h21 = (w2 * w1 - r02 * w2 + d22 * w0) * over
        h22 = (w2 * w2 + r02 * w1 - r12 * w0) * over
        o[s] = c0 * h00 + c1 * h10 + c2 * h20
        o[s + n] = c0 * h01 + c1 * h11 + c2 * h21
        o[s + 2 * n] = c0 * h02 + c1 * h12 + c2 * h22
        o[s + 3 * n] = e0 * h00 + e1 * h10 + e2 * h20
        o[s + 4 * n] = e0 * h01 + e1 * h11 + e2 * h21
        o[s + 5 * n] = e0 * h02 + e1 * h12 + e2 * h22


@kernel
def project_samples(w, t, lens, p, by_w, by_t, by_lens, by_p):
    """Lane after lane into one array and out of another, where nothing can overlap."""
    count = len(w)
    a, o = np.ones(12 * LANES), np.empty(24 * LANES)
    for first in range(0, count, LANES):
        lanes = min(LANES, count - first)
        for s in range(lanes):
            for k in range(3):
                a[s + k * LANES] = w[first + s, k]
                a[s + (3 + k) * LANES] = t[first + s, k]
                a[s + (6 + k) * LANES] = lens[first + s, k]
                a[s + (9 + k) * LANES] = p[first + s, k]
        project(a, o)
        for s in range(lanes):
            for i in range(2):
                for k in range(3):
                    place = s + (3 * i + k) * LANES
                    by_w[first + s, i, k] = o[place]
                    by_t[first + s, i, k] = o[place + 6 * LANES]
                    by_lens[first + s, i, k] = o[place + 12 * LANES]
                    by_p[first + s, i, k] = o[place + 18 * LANES]


@parallel
def project_parts(parts, w, t, lens, p, by_w, by_t, by_lens, by_p):
    n = len(w)
    for part in prange(parts):
        s, e = n * part // parts, n * (part + 1) // parts
        project_samples(
            w[s:e], t[s:e], lens[s:e], p[s:e], by_w[s:e], by_t[s:e], by_lens[s:e], by_p[s:e]
        )


def projection_jacobian(
    w: np.ndarray, t: np.ndarray, lens: np.ndarray, p: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Each: (batch, 3); the results: (batch, 2, 3)."""
    shape = (len(w), 2, 3)
    outs = np.empty(shape), np.empty(shape), np.empty(shape), np.empty(shape)
    if THREADS > 1 and len(w) >= 1500:
        project_parts(THREADS, w, t, lens, p, *outs)
    else:
        project_samples(w, t, lens, p, *outs)
    return outs


KERNELS = {"camera projection jacobian": projection_jacobian}
