"""Classification and regression: many samples, one set of weights."""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np
from numba import prange

from tests.benchmarks.specialist.compiled import THREADS, inlined, kernel, parallel
from tests.benchmarks.specialist.elementary import highest, vexp
from tests.benchmarks.specialist.linear_algebra import call, mirror, product_by_transpose

SAMPLES = 32
"""Samples whose exponentials are computed together."""


@inlined
def dot(a, b):
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@inlined
def mean_row(W, p, mean):
    """mean = Wᵀ p, by four rows at a time, so that mean is read and written less often."""
    classes, inputs = W.shape
    fours = classes // 4 * 4
    mean[:] = 0.0
    for k in range(0, fours, 4):
        first, second, third, fourth = W[k], W[k + 1], W[k + 2], W[k + 3]
        one, two, three, four = p[k], p[k + 1], p[k + 2], p[k + 3]
        for j in range(inputs):
            mean[j] += one * first[j] + two * second[j] + three * third[j] + four * fourth[j]
    for k in range(fours, classes):
        row, share = W[k], p[k]
        for j in range(inputs):
            mean[j] += share * row[j]


@kernel
def exponentials(p):
    for i in range(len(p)):
        p[i] = vexp(p[i])


@kernel
def softmax_samples(x, W, b, out):
    classes, inputs = W.shape
    p, mean = np.empty((SAMPLES, classes)), np.empty(inputs)
    for first in range(0, len(x), SAMPLES):
        samples = min(SAMPLES, len(x) - first)
        product_by_transpose(1.0, x[first : first + samples], W, 0.0, p[:samples])
        for sample in range(samples):
            share = p[sample]
            for k in range(classes):
                share[k] += b[k]
            top = highest(share)
            for k in range(classes):
                share[k] -= top
        exponentials(p[:samples].reshape(-1))
        for sample in range(samples):
            share, total = p[sample], 0.0
            for k in range(classes):
                total += share[k]
            total = 1.0 / total
            for k in range(classes):
                share[k] *= total
            mean_row(W, share, mean)
            for k in range(classes):
                row, factor, result = W[k], share[k], out[first + sample, k]
                for j in range(inputs):
                    result[j] = factor * (row[j] - mean[j])


@parallel
def softmax_parts(parts, x, W, b, out):
    n = len(x)
    for part in prange(parts):
        start, stop = n * part // parts, n * (part + 1) // parts
        softmax_samples(x[start:stop], W, b, out[start:stop])


def softmax_jacobian(x: np.ndarray, W: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x: (batch, d), W: (c, d), b: (c,); the result: (batch, c, d)."""
    out = np.empty((len(x), *W.shape))
    if THREADS > 1 and out.size > 50_000:
        softmax_parts(THREADS, x, W, b, out)
    else:
        softmax_samples(x, W, b, out)
    return out


@kernel
def logistic_hessian_kernel(A, y, w, out):
    """The Gram matrix of A's rows, each times the root of its weight."""
    samples, d = A.shape
    scaled = np.empty_like(A)
    for i in range(samples):
        e = vexp(-abs(y[i] * dot(A[i], w)))
        factor = abs(y[i]) * np.sqrt(e) / (1.0 + e)
        for j in range(d):
            scaled[i, j] = factor * A[i, j]
    call("syrk UN", (d, samples, 1.0, scaled, d, 0.0, out, d))
    mirror(out)


def logistic_hessian(A: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A: (N, d), y: (N,), w: (d,); the result: (d, d)."""
    d = len(w)
    out = np.empty((d, d))
    logistic_hessian_kernel(A, y, w, out)
    return out


@kernel
def poisson_kernel(A, y, w, step):
    samples, d = A.shape
    scaled, hessian = np.empty_like(A), np.zeros((d, d))
    step[:] = w
    for i in range(samples):
        mean = vexp(dot(A[i], w))
        factor, residual = np.sqrt(mean), mean - y[i]
        for j in range(d):
            scaled[i, j] = factor * A[i, j]
            step[j] += residual * A[i, j]
    for j in range(d):
        hessian[j, j] = 1.0
    call("syrk UN", (d, samples, 1.0, scaled, d, 1.0, hessian, d))
    call("potrf U", (d, hessian, d, 0))
    call("potrs U", (d, 1, hessian, d, step, d, 0))


def poisson_step(A: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A: (N, d), y: (N,), w and the result: (d,)."""
    step = np.empty(len(w))
    poisson_kernel(A, y, w, step)
    return step


KERNELS = {
    "softmax classifier jacobian": softmax_jacobian,
    "logistic regression hessian": logistic_hessian,
    "Poisson regression newton": poisson_step,
}
