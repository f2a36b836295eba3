"""Products of matrices."""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np
from numba import prange

from tests.benchmarks.specialist.compiled import THREADS, kernel, parallel
from tests.benchmarks.specialist.linear_algebra import (
    add_small,
    product,
    product_by_transpose,
    product_of_transpose,
)

SMALL = 12
"""Rows up to which loops beat the calls of BLAS."""


@kernel
def square_loops(X, cotangent, out):
    n = len(X)
    turned = np.empty_like(X)
    for i in range(n):
        for j in range(n):
            turned[i, j] = X[j, i]
            out[i, j] = 0.0
    add_small(cotangent, turned, out)
    add_small(turned, cotangent, out)


@kernel
def square_products(X, cotangent, out):
    product_by_transpose(1.0, cotangent, X, 0.0, out)
    product_of_transpose(1.0, X, cotangent, 1.0, out)


def square_vjp(X: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
    """X, cotangent and the result: (n, n)."""
    out = np.empty(X.shape, X.dtype)
    (square_loops if len(X) <= SMALL else square_products)(X, cotangent, out)
    return out


@kernel
def square_blocks(first, X, out):
    """out[i, j] = e_i (column j of X)ᵀ + (row i of X) e_jᵀ for some i, from `first` on."""
    n = len(X)
    turned = np.empty_like(X)
    for i in range(n):
        for j in range(n):
            turned[i, j] = X[j, i]
    for place in range(len(out)):
        i = first + place
        for j in range(n):
            block = out[place, j]
            block[:] = 0.0
            for k in range(n):
                block[i, k] = turned[j, k]
            for k in range(n):
                block[k, j] += X[i, k]


@parallel
def square_blocks_parts(parts, X, out):
    n = len(X)
    for part in prange(parts):
        start, stop = n * part // parts, n * (part + 1) // parts
        square_blocks(start, X, out[start:stop])


def square_jacobian(X: np.ndarray) -> np.ndarray:
    """X: (n, n); the result: (n, n, n, n)."""
    n = len(X)
    out = np.empty((n, n, n, n), X.dtype)
    if THREADS > 1 and n >= 20:
        square_blocks_parts(THREADS, X, out)
    else:
        square_blocks(0, X, out)
    return out


@kernel
def energy_loops(X, out):
    n = len(X)
    turned, square = np.empty_like(X), np.empty_like(X)
    for i in range(n):
        for j in range(n):
            turned[i, j] = X[j, i]
            square[i, j] = out[i, j] = 0.0
    add_small(X, X, square)
    add_small(turned, square, out)
    add_small(square, turned, out)
    for i in range(n):
        for j in range(n):
            out[i, j] *= 2.0


@kernel
def energy_products(X, out):
    square = np.empty_like(X)
    product(1.0, X, X, 0.0, square)
    product_of_transpose(2.0, X, square, 0.0, out)
    product_by_transpose(2.0, square, X, 1.0, out)


def energy_gradient(X: np.ndarray) -> np.ndarray:
    """X and the result: (n, n)."""
    out = np.empty(X.shape, X.dtype)
    (energy_loops if len(X) <= SMALL else energy_products)(X, out)
    return out


@kernel
def chain_forward(A, C, d, cotangent, v, w):
    """v = C d for these rows, and their part of w = Aᵀ cotangent."""
    n = C.shape[1]
    w[:] = 0.0
    for i in range(len(C)):
        total, factor = 0.0, cotangent[i]
        for j in range(n):
            total += C[i, j] * d[j]
            w[j] += factor * A[i, j]
        v[i] = total


@kernel
def chain_middle(B, v, w, u, x, by_B):
    """u = B v for these rows, their part of x = Bᵀ w, and w vᵀ."""
    n = B.shape[1]
    x[:] = 0.0
    for i in range(len(B)):
        total, factor = 0.0, w[i]
        for j in range(n):
            total += B[i, j] * v[j]
            x[j] += factor * B[i, j]
            by_B[i, j] = factor * v[j]
        u[i] = total


@kernel
def chain_back(C, d, cotangent, u, x, by_A, by_C, by_d):
    """cotangent uᵀ and x dᵀ for these rows, and their part of Cᵀ x."""
    n = C.shape[1]
    by_d[:] = 0.0
    for i in range(len(C)):
        first, second = cotangent[i], x[i]
        for j in range(n):
            by_A[i, j] = first * u[j]
            by_C[i, j] = second * d[j]
            by_d[j] += second * C[i, j]


@kernel
def chain_whole(A, B, C, d, cotangent, by_A, by_B, by_C, by_d):
    v, w, u, x = np.empty_like(d), np.empty_like(d), np.empty_like(d), np.empty_like(d)
    chain_forward(A, C, d, cotangent, v, w)
    chain_middle(B, v, w, u, x, by_B)
    chain_back(C, d, cotangent, u, x, by_A, by_C, by_d)


@parallel
def chain_parts(parts, A, B, C, d, cotangent, by_A, by_B, by_C, by_d):
    """Three times over shares of the rows, with the shares' sums between."""
    n = len(d)
    v, u, sums = np.empty_like(d), np.empty_like(d), np.empty((parts, n), d.dtype)
    for part in prange(parts):
        s, e = n * part // parts, n * (part + 1) // parts
        chain_forward(A[s:e], C[s:e], d, cotangent[s:e], v[s:e], sums[part])
    w = sums.sum(axis=0)
    for part in prange(parts):
        s, e = n * part // parts, n * (part + 1) // parts
        chain_middle(B[s:e], v, w[s:e], u[s:e], sums[part], by_B[s:e])
    x = sums.sum(axis=0)
    for part in prange(parts):
        s, e = n * part // parts, n * (part + 1) // parts
        chain_back(C[s:e], d, cotangent[s:e], u, x[s:e], by_A[s:e], by_C[s:e], sums[part])
    by_d[:] = sums.sum(axis=0)


def chain_vjp(
    A: np.ndarray, B: np.ndarray, C: np.ndarray, d: np.ndarray, cotangent: np.ndarray
) -> tuple[np.ndarray, ...]:
    """A, B, C: (n, n); d, cotangent: (n,); the results as the inputs."""
    n = len(d)
    shape = (n, n)
    outs = np.empty(shape), np.empty(shape), np.empty(shape), np.empty(n)
    if THREADS > 1 and n >= 200:
        chain_parts(THREADS, A, B, C, d, cotangent, *outs)
    else:
        chain_whole(A, B, C, d, cotangent, *outs)
    return outs


@kernel
def diagonal_rows(first, b, out):
    for i in range(len(out)):
        out[i, :] = 0.0
        out[i, first + i] = b[first + i]


@parallel
def diagonal_parts(parts, b, out):
    n = len(b)
    for part in prange(parts):
        start, stop = n * part // parts, n * (part + 1) // parts
        diagonal_rows(start, b, out[start:stop])


def hadamard_jacobian(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a, b: (n,); the result: (n, n)."""
    n = len(b)
    out = np.empty((n, n), b.dtype)
    if THREADS > 1 and n >= 400:
        diagonal_parts(THREADS, b, out)
    else:
        diagonal_rows(0, b, out)
    return out


KERNELS = {
    "X X vjp": square_vjp,
    "X X jacobian": square_jacobian,
    "tr((X X)ᵀ X X) gradient": energy_gradient,
    "A B C d vjp": chain_vjp,
    "a * b jacobian": hadamard_jacobian,
}
