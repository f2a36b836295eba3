"""A matrix as a product of two thin ones: blocks on the diagonal, by rows."""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np
from numba import prange

from tests.benchmarks.specialist.compiled import THREADS, kernel, parallel
from tests.benchmarks.specialist.linear_algebra import product


@kernel
def place_blocks(first, blocks, out):
    """Write rows of a block diagonal (n, k, n, k) array, from `first` on; one block for all
    counts for each."""
    k = out.shape[1]
    for place in range(len(out)):
        block = blocks[first + place if len(blocks) > 1 else 0]
        for p in range(k):
            row = out[place, p]
            row[:] = 0.0
            for q in range(k):
                row[first + place, q] = block[p, q]


@parallel
def place_blocks_parts(parts, blocks, out):
    n = len(out)
    for part in prange(parts):
        start, stop = n * part // parts, n * (part + 1) // parts
        place_blocks(start, blocks, out[start:stop])


@kernel
def plain_block(V, block):
    n, k = V.shape
    block[:] = 0.0
    for i in range(n):
        for p in range(k):
            for q in range(k):
                block[0, p, q] += 2.0 * V[i, p] * V[i, q]


@kernel
def plain_whole(V, out):
    k = V.shape[1]
    block = np.empty((1, k, k))
    plain_block(V, block)
    place_blocks(0, block, out)


def plain_hessian(T: np.ndarray, U: np.ndarray, V: np.ndarray) -> np.ndarray:
    """U, V: (n, k); the result: (n, k, n, k)."""
    n, k = U.shape
    out = np.empty((n, k, n, k))
    if THREADS > 1 and out.size > 100_000:
        block = np.empty((1, k, k))
        plain_block(V, block)
        place_blocks_parts(THREADS, block, out)
    else:
        plain_whole(V, out)
    return out


@kernel
def masked_blocks(M, V, blocks):
    """2 Σ_j M[i, j]² V_j V_jᵀ for each i, as one product with the pairs V_jp V_jq, p ≤ q."""
    n, k = V.shape
    count = k * (k + 1) // 2
    squares, pairs, sums = np.empty((n, n)), np.empty((n, count)), np.empty((n, count))
    for i in range(n):
        for j in range(n):
            squares[i, j] = M[i, j] * M[i, j]
        place = 0
        for p in range(k):
            for q in range(p, k):
                pairs[i, place] = V[i, p] * V[i, q]
                place += 1
    product(2.0, squares, pairs, 0.0, sums)
    for i in range(n):
        place = 0
        for p in range(k):
            for q in range(p, k):
                blocks[i, p, q] = blocks[i, q, p] = sums[i, place]
                place += 1


@kernel
def masked_whole(M, V, out):
    n, k = V.shape
    blocks = np.empty((n, k, k))
    masked_blocks(M, V, blocks)
    place_blocks(0, blocks, out)


def masked_hessian(T: np.ndarray, M: np.ndarray, U: np.ndarray, V: np.ndarray) -> np.ndarray:
    """M: (n, n), U, V: (n, k); the result: (n, k, n, k)."""
    n, k = U.shape
    out = np.empty((n, k, n, k))
    if THREADS > 1 and out.size > 100_000:
        blocks = np.empty((n, k, k))
        masked_blocks(M, V, blocks)
        place_blocks_parts(THREADS, blocks, out)
    else:
        masked_whole(M, V, out)
    return out


KERNELS = {
    "|T - U Vᵀ|² by U hessian": plain_hessian,
    "|M * (T - U Vᵀ)|² by U hessian": masked_hessian,
}
