"""A matrix as a product of two thin ones, all entries weighed alike or by a mask."""

from __future__ import annotations

import numpy as np

import derivatrix as dx
from tests.benchmarks.record import Row

n, k = dx.dims("n k")
T, M = dx.matrix("T", n, n), dx.matrix("M", n, n)
U, V = dx.matrix("U", n, k), dx.matrix("V", n, k)
SIZES = tuple({"n": n, "k": 5} for n in (10, 25, 50, 75, 100))


def plain_hessian(T: np.ndarray, U: np.ndarray, V: np.ndarray) -> np.ndarray:
    n, k = U.shape
    H, rows = np.zeros((n, k, n, k)), np.arange(n)
    H[rows, :, rows, :] = 2 * V.T @ V
    return H


def masked_hessian(T: np.ndarray, M: np.ndarray, U: np.ndarray, V: np.ndarray) -> np.ndarray:
    n, k = U.shape
    H, rows = np.zeros((n, k, n, k)), np.arange(n)
    pairs = (V[:, :, None] * V[:, None, :]).reshape(n, k * k)
    H[rows, :, rows, :] = 2 * ((M * M) @ pairs).reshape(n, k, k)
    return H


ROWS = [
    Row(
        title="|T - U Vᵀ|² by U",
        kind="hessian",
        function=dx.function("factorise", [T, U, V], dx.sum((T - U @ V.T) ** 2), wrt=[U]),
        program=lambda library, T, U, V: library.sum((T - U @ V.T) ** 2),
        closed=plain_hessian,
        sizes=SIZES,
        flops=lambda n, k: 2 * n * k * k,
    ),
    Row(
        title="|M * (T - U Vᵀ)|² by U",
        kind="hessian",
        function=dx.function("masked", [T, M, U, V], dx.sum((M * (T - U @ V.T)) ** 2), wrt=[U]),
        program=lambda library, T, M, U, V: library.sum((M * (T - U @ V.T)) ** 2),
        closed=masked_hessian,
        sizes=SIZES,
        flops=lambda n, k: n * n * k * (k + 1) + n * n,
    ),
]
