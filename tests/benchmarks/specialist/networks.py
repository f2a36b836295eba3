"""Two layers, and attention."""

# mypy: allow-untyped-defs

from __future__ import annotations

from functools import partial

import numpy as np
from numba import prange

from tests.benchmarks.specialist.compiled import THREADS, kernel, parallel
from tests.benchmarks.specialist.elementary import highest, vexp, vtanh
from tests.benchmarks.specialist.linear_algebra import (
    product,
    product_by_transpose,
    product_of_transpose,
)


@kernel
def activate(smooth, values, slopes, seconds):
    """Replace arguments by values of tanh or relu; its two derivatives."""
    for place in range(len(values)):
        x = values[place]
        if smooth:
            t = vtanh(x)
            values[place] = t
            slopes[place] = 1.0 - t * t
            seconds[place] = -2.0 * t * (1.0 - t * t)
        else:
            values[place] = max(x, 0.0)
            slopes[place] = 1.0 if x > 0.0 else 0.0
            seconds[place] = 0.0


@kernel
def curvatures(smooth, X, Y, W1, W2, packed):
    """The loss's second derivatives by the activations' arguments: of each sample the lower
    triangle, row by row."""
    samples, h = len(X), len(W1)
    work = np.empty((4, samples, h))
    values, slopes, seconds, backs = work[0], work[1], work[2], work[3]
    product_by_transpose(1.0, X, W1, 0.0, values)
    activate(smooth, values.reshape(-1), slopes.reshape(-1), seconds.reshape(-1))
    residuals, gram = Y.copy(), np.empty((h, h))
    product_by_transpose(1.0, values, W2, -1.0, residuals)
    product(2.0, residuals, W2, 0.0, backs)
    product_of_transpose(2.0, W2, W2, 0.0, gram)
    for sample in range(samples):
        place, slope = 0, slopes[sample]
        for a in range(h):
            row = packed[sample, place : place + a + 1]
            weights, factor = gram[a], slope[a]
            for b in range(a + 1):
                row[b] = factor * weights[b] * slope[b]
            row[a] += backs[sample, a] * seconds[sample, a]
            place += a + 1


@kernel
def pairs(X, packed):
    """The lower triangles of x xᵀ, row by row."""
    samples, d = X.shape
    for sample in range(samples):
        place, point = 0, X[sample]
        for p in range(d):
            row, factor = packed[sample, place : place + p + 1], point[p]
            for q in range(p + 1):
                row[q] = factor * point[q]
            place += p + 1


@kernel
def spread(first, last, packed, out):
    """Write out[a, p, b, q] and out[b, p, a, q], first ≤ a < last and b ≤ a, from the packed
    triangles of both pairs."""
    d = out.shape[1]
    block = np.empty((d, d))
    for a in range(first, last):
        for b in range(a + 1):
            triangle, place = packed[a * (a + 1) // 2 + b], 0
            for p in range(d):
                row = triangle[place : place + p + 1]
                for q in range(p + 1):
                    block[p, q] = row[q]
                for q in range(p):
                    block[q, p] = row[q]
                place += p + 1
            for p in range(d):
                source, one, other = block[p], out[a, p, b], out[b, p, a]
                for q in range(d):
                    one[q] = source[q]
                    other[q] = source[q]


@parallel
def spread_parts(parts, packed, out):
    """Row a has a + 1 pairs, so the shares end at roots."""
    h = len(out)
    for part in prange(parts):
        first, last = int(h * np.sqrt(part / parts)), int(h * np.sqrt((part + 1) / parts))
        spread(first, last, packed, out)


@kernel
def small_products(smooth, X, Y, W1, W2, sums):
    (samples, d), h = X.shape, len(W1)
    C, P = np.empty((samples, h * (h + 1) // 2)), np.empty((samples, d * (d + 1) // 2))
    curvatures(smooth, X, Y, W1, W2, C)
    pairs(X, P)
    product_of_transpose(1.0, C, P, 0.0, sums)


@kernel
def small_whole(smooth, X, Y, W1, W2, out):
    h, d = W1.shape
    sums = np.empty((h * (h + 1) // 2, d * (d + 1) // 2))
    small_products(smooth, X, Y, W1, W2, sums)
    spread(0, h, sums, out)


@kernel
def small_single(smooth, X, Y, W1, W2, out):
    """Compute the Hessian of one sample: C ⊗ x xᵀ."""
    h, d = W1.shape
    C, x = np.empty((1, h * (h + 1) // 2)), X[0]
    curvatures(smooth, X, Y, W1, W2, C)
    for a in range(h):
        for p in range(d):
            for b in range(h):
                low, high = min(a, b), max(a, b)
                row, factor = out[a, p, b], C[0, high * (high + 1) // 2 + low] * x[p]
                for q in range(d):
                    row[q] = factor * x[q]


def small_hessian(
    smooth: bool, X: np.ndarray, Y: np.ndarray, W1: np.ndarray, W2: np.ndarray
) -> np.ndarray:
    """X: (N, d), Y: (N, c), W1: (h, d), W2: (c, h); the result: (h, d, h, d)."""
    h, d = W1.shape
    out = np.empty((h, d, h, d))
    if len(X) == 1:
        small_single(smooth, X, Y, W1, W2, out)
    elif THREADS > 1 and out.size > 500_000:
        sums = np.empty((h * (h + 1) // 2, d * (d + 1) // 2))
        small_products(smooth, X, Y, W1, W2, sums)
        spread_parts(THREADS, sums, out)
    else:
        small_whole(smooth, X, Y, W1, W2, out)
    return out


@kernel
def attention_kernel(Q, K, V, cotangent, by_Q, by_K, by_V):
    n, d = Q.shape
    scale = 1.0 / np.sqrt(d)
    P, back = np.empty((n, n)), np.empty((n, n))
    product_by_transpose(scale, Q, K, 0.0, P)
    product_by_transpose(1.0, cotangent, V, 0.0, back)
    for i in range(n):
        p, g = P[i], back[i]
        top, total, inner = highest(p), 0.0, 0.0
        for j in range(n):
            e = vexp(p[j] - top)
            p[j] = e
            total += e
            inner += e * g[j]
        inner /= total
        total = 1.0 / total
        for j in range(n):
            p[j] *= total
            g[j] = scale * p[j] * (g[j] - inner)
    product(1.0, back, K, 0.0, by_Q)
    product_of_transpose(1.0, back, Q, 0.0, by_K)
    product_of_transpose(1.0, P, cotangent, 0.0, by_V)


def attention_vjp(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, cotangent: np.ndarray
) -> tuple[np.ndarray, ...]:
    """All: (n, d)."""
    outs = np.empty(Q.shape), np.empty(Q.shape), np.empty(Q.shape)
    attention_kernel(Q, K, V, cotangent, *outs)
    return outs


@kernel
def attentions_kernel(Q, K, V, cotangent, by_Q, by_K, by_V):
    for i in range(len(Q)):
        attention_kernel(Q[i], K[i], V[i], cotangent[i], by_Q[i], by_K[i], by_V[i])


@parallel
def attentions_parts(parts, Q, K, V, cotangent, by_Q, by_K, by_V):
    """BLAS computes products of this size in the thread that calls it."""
    n = len(Q)
    for part in prange(parts):
        s, e = n * part // parts, n * (part + 1) // parts
        attentions_kernel(Q[s:e], K[s:e], V[s:e], cotangent[s:e], by_Q[s:e], by_K[s:e], by_V[s:e])


def attentions_vjp(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, cotangent: np.ndarray
) -> tuple[np.ndarray, ...]:
    """All: (batch, n, d)."""
    outs = np.empty(Q.shape), np.empty(Q.shape), np.empty(Q.shape)
    if THREADS > 1 and len(Q) > 1:
        attentions_parts(THREADS, Q, K, V, cotangent, *outs)
    else:
        attentions_kernel(Q, K, V, cotangent, *outs)
    return outs


KERNELS = {
    "two layers, relu, by the first hessian": partial(small_hessian, False),
    "two layers, tanh, by the first hessian": partial(small_hessian, True),
    "attention vjp": attention_vjp,
    "attention, batched vjp": attentions_vjp,
}
