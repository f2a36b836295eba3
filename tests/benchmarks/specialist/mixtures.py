"""The gradients of mixtures of Gaussians."""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np
from numba import prange

from tests.benchmarks.specialist.compiled import THREADS, kernel, parallel
from tests.benchmarks.specialist.elementary import vexp

LANES = 64
"""Samples at a time, side by side: what belongs to them stays in the nearest cache."""


@kernel
def responsibilities(r, lanes, top, sums, totals):
    """Compute the responsibilities of the first samples, and 0 for the others, from logarithms r
    (K, LANES) and the largest for each sample. Their sums over samples are added to totals (K,)."""
    clusters = len(totals)
    sums[:] = 0.0
    for k in range(clusters):
        row = r[k]
        for lane in range(LANES):
            e = vexp(row[lane] - top[lane])
            row[lane] = e
            sums[lane] += e
    for lane in range(LANES):
        sums[lane] = 1.0 / sums[lane] if lane < lanes else 0.0
    for k in range(clusters):
        row, total = r[k], 0.0
        for lane in range(LANES):
            row[lane] *= sums[lane]
            total += row[lane]
        totals[k] += total


@kernel
def mixture_sums(S, logs, mu, precision, totals, by_mu, by_q):
    """The sums over samples of r, r (S - mu) and r (S - mu)², with the responsibilities r.

    S: (N, d); logs: (K,), what does not depend on samples; mu, precision, by_mu, by_q: (K, d).
    """
    (count, d), clusters = S.shape, len(logs)
    columns, r = np.zeros((d, LANES)), np.empty((clusters, LANES))
    top, sums = np.empty(LANES), np.empty(LANES)
    totals[:] = 0.0
    by_mu[:] = 0.0
    by_q[:] = 0.0
    for first in range(0, count, LANES):
        lanes = min(LANES, count - first)
        top[:] = -np.inf
        for lane in range(lanes):
            for j in range(d):
                columns[j, lane] = S[first + lane, j]
        for k in range(clusters):
            row = r[k]
            row[:] = logs[k]
            for j in range(d):
                column, mean, half = columns[j], mu[k, j], 0.5 * precision[k, j]
                for lane in range(LANES):
                    difference = column[lane] - mean
                    row[lane] -= half * difference * difference
            for lane in range(LANES):
                top[lane] = max(top[lane], row[lane])
        responsibilities(r, lanes, top, sums, totals)
        for k in range(clusters):
            row = r[k]
            for j in range(d):
                column, mean, one, two = columns[j], mu[k, j], 0.0, 0.0
                for lane in range(LANES):
                    difference = column[lane] - mean
                    part = row[lane] * difference
                    one += part
                    two += part * difference
                by_mu[k, j] += one
                by_q[k, j] += two


@kernel
def constants(a, q, logs, precision):
    clusters, d = q.shape
    for k in range(clusters):
        total = a[k]
        for j in range(d):
            total += q[k, j]
            precision[k, j] = vexp(2.0 * q[k, j])
        logs[k] = total


@kernel
def complete(count, a, precision, totals, by_mu, by_q):
    """The gradients from the sums; that by a in the place of the totals."""
    clusters, d = precision.shape
    top, total = a.max(), 0.0
    for k in range(clusters):
        for j in range(d):
            by_mu[k, j] *= precision[k, j]
            by_q[k, j] = totals[k] - precision[k, j] * by_q[k, j]
        total += vexp(a[k] - top)
    for k in range(clusters):
        totals[k] -= count * vexp(a[k] - top) / total


@kernel
def mixture_whole(S, a, mu, q, by_a, by_mu, by_q):
    logs, precision = np.empty_like(a), np.empty_like(q)
    constants(a, q, logs, precision)
    mixture_sums(S, logs, mu, precision, by_a, by_mu, by_q)
    complete(len(S), a, precision, by_a, by_mu, by_q)


@parallel
def mixture_parts(parts, S, a, mu, q, by_a, by_mu, by_q):
    (clusters, d), n = q.shape, len(S)
    logs, precision = np.empty_like(a), np.empty_like(q)
    constants(a, q, logs, precision)
    sums, moments = np.empty((parts, clusters)), np.empty((parts, 2, clusters, d))
    for part in prange(parts):
        s, e = n * part // parts, n * (part + 1) // parts
        one, two = moments[part, 0], moments[part, 1]
        mixture_sums(S[s:e], logs, mu, precision, sums[part], one, two)
    by_a[:] = sums.sum(axis=0)
    by_mu[:] = moments[:, 0].sum(axis=0)
    by_q[:] = moments[:, 1].sum(axis=0)
    complete(n, a, precision, by_a, by_mu, by_q)


def mixture_gradient(
    S: np.ndarray, a: np.ndarray, mu: np.ndarray, q: np.ndarray
) -> tuple[np.ndarray, ...]:
    """S: (N, d), a: (K,), mu, q: (K, d); the results as a, mu and q."""
    outs = np.empty(a.shape), np.empty(q.shape), np.empty(q.shape)
    if THREADS > 1 and len(S) * q.size > 60_000:
        mixture_parts(THREADS, S, a, mu, q, *outs)
    else:
        mixture_whole(S, a, mu, q, *outs)
    return outs


@kernel
def full_sums(S, a, mu, U, by_a, by_mu, by_u):
    """The sums over samples: by_a (K,), by_mu (K, d) yet to be multiplied by U, by_u (K, d, d)."""
    (count, d), clusters = S.shape, len(a)
    difference, scaled = np.zeros((clusters, d, LANES)), np.empty((clusters, d, LANES))
    r, top, sums = np.empty((clusters, LANES)), np.empty(LANES), np.empty(LANES)
    by_a[:] = 0.0
    by_mu[:] = 0.0
    by_u[:] = 0.0
    for first in range(0, count, LANES):
        lanes = min(LANES, count - first)
        top[:] = -np.inf
        for k in range(clusters):
            row = r[k]
            row[:] = a[k]
            for j in range(d):
                column, mean = difference[k, j], mu[k, j]
                for lane in range(lanes):
                    column[lane] = S[first + lane, j] - mean
            for i in range(d):
                product = scaled[k, i]
                product[:] = 0.0
                for j in range(d):
                    column, factor = difference[k, j], U[k, j, i]
                    for lane in range(LANES):
                        product[lane] += factor * column[lane]
                for lane in range(LANES):
                    row[lane] -= 0.5 * product[lane] * product[lane]
            for lane in range(LANES):
                top[lane] = max(top[lane], row[lane])
        responsibilities(r, lanes, top, sums, by_a)
        for k in range(clusters):
            row = r[k]
            for i in range(d):
                product, total = scaled[k, i], 0.0
                for lane in range(LANES):
                    product[lane] *= row[lane]
                    total += product[lane]
                by_mu[k, i] += total
                for j in range(d):
                    column, total = difference[k, j], 0.0
                    for lane in range(LANES):
                        total += column[lane] * product[lane]
                    by_u[k, j, i] -= total


@kernel
def times_factors(U, by_mu):
    clusters, d = by_mu.shape
    product = np.empty(d)
    for k in range(clusters):
        for j in range(d):
            product[j] = 0.0
            for i in range(d):
                product[j] += U[k, j, i] * by_mu[k, i]
        by_mu[k] = product


@kernel
def full_whole(S, a, mu, U, by_a, by_mu, by_u):
    full_sums(S, a, mu, U, by_a, by_mu, by_u)
    times_factors(U, by_mu)


@parallel
def full_parts(parts, S, a, mu, U, by_a, by_mu, by_u):
    clusters, d = mu.shape
    ones, twos = np.empty((parts, clusters)), np.empty((parts, clusters, d))
    threes = np.empty((parts, clusters, d, d))
    for part in prange(parts):
        s, e = len(S) * part // parts, len(S) * (part + 1) // parts
        full_sums(S[s:e], a, mu, U, ones[part], twos[part], threes[part])
    by_a[:] = ones.sum(axis=0)
    by_mu[:] = twos.sum(axis=0)
    by_u[:] = threes.sum(axis=0)
    times_factors(U, by_mu)


def full_gradient(
    S: np.ndarray, a: np.ndarray, mu: np.ndarray, U: np.ndarray
) -> tuple[np.ndarray, ...]:
    """S: (N, d), a: (K,), mu: (K, d), U: (K, d, d); the results as a, mu and U."""
    outs = np.empty(a.shape), np.empty(mu.shape), np.empty(U.shape)
    if THREADS > 1 and len(S) * U.size > 60_000:
        full_parts(THREADS, S, a, mu, U, *outs)
    else:
        full_whole(S, a, mu, U, *outs)
    return outs


KERNELS = {
    "Gaussian mixture gradient": mixture_gradient,
    "Gaussian mixture, a matrix each gradient": full_gradient,
}
