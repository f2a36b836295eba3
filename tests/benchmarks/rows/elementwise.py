"""Chains of elementwise functions."""

from __future__ import annotations

import numpy as np

import derivatrix as dx
from tests.benchmarks.record import TRANSCENDENTAL, Row

n = dx.dims("n")
x = dx.vector("x", n)


def chain_gradient(x: np.ndarray) -> np.ndarray:
    bell = np.exp(-x * x)
    return (1 - np.tanh(x * bell) ** 2) * (1 - 2 * x * x) * bell


ROWS = [
    Row(
        title="Σ tanh(x exp(-x²))",
        kind="gradient",
        function=dx.function("chain_of_functions", [x], dx.sum(dx.tanh(x * dx.exp(-(x**2))))),
        program=lambda library, x: library.sum(library.tanh(x * library.exp(-(x * x)))),
        closed=chain_gradient,
        sizes=tuple({"n": 10**k} for k in range(1, 7)),
        larger=({"n": 3 * 10**7},),
        flops=lambda n: n * (2 * TRANSCENDENTAL + 8),
        dtypes=("float64", "float32"),
    ),
]
