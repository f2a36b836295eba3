"""Products of matrices."""

from __future__ import annotations

import numpy as np

import derivatrix as dx
from tests.benchmarks.record import Row

n, m = dx.dims("n m")
X, B, C = dx.matrix("X", n, n), dx.matrix("B", n, n), dx.matrix("C", n, n)
A, d = dx.matrix("A", n, n), dx.vector("d", n)
a, b = dx.vector("a", n), dx.vector("b", n)


def square_jacobian(X: np.ndarray) -> np.ndarray:
    n = len(X)
    J, rows = np.zeros((n, n, n, n)), np.arange(n)
    J[rows, :, rows, :] = X.T
    J[:, rows, :, rows] += X
    return J


def energy_gradient(X: np.ndarray) -> np.ndarray:
    Y = X @ X
    return 2 * (X.T @ Y + Y @ X.T)


def chain_vjp(
    A: np.ndarray, B: np.ndarray, C: np.ndarray, d: np.ndarray, cotangent: np.ndarray
) -> tuple[np.ndarray, ...]:
    v, w = C @ d, A.T @ cotangent
    x = B.T @ w
    return np.outer(cotangent, B @ v), np.outer(w, v), np.outer(x, d), C.T @ x


ROWS = [
    Row(
        title="X X",
        kind="vjp",
        function=dx.function("square", [X], X @ X),
        program=lambda library, X: X @ X,
        closed=lambda X, cotangent: cotangent @ X.T + X.T @ cotangent,
        sizes=tuple({"n": n} for n in (2, 4, 8, 16, 32, 64, 128, 256, 512)),
        larger=({"n": 4096},),
        flops=lambda n: 4 * n**3,
        dtypes=("float64", "float32"),
    ),
    Row(
        title="X X",
        kind="jacobian",
        function=dx.function("square", [X], X @ X),
        program=lambda library, X: X @ X,
        closed=square_jacobian,
        sizes=tuple({"n": n} for n in (4, 8, 16, 24, 32, 48)),
        larger=({"n": 90},),
        flops=lambda n: n**2,
    ),
    Row(
        title="tr((X X)ᵀ X X)",
        kind="gradient",
        function=dx.function("energy", [X], dx.trace((X @ X).T @ (X @ X))),
        program=lambda library, X: library.sum((X @ X) ** 2),
        closed=energy_gradient,
        sizes=tuple({"n": n} for n in (4, 8, 16, 32, 64, 128, 256, 512)),
        flops=lambda n: 6 * n**3,
        dtypes=("float64", "float32"),
    ),
    Row(
        title="A B C d",
        kind="vjp",
        function=dx.function("chain", [A, B, C, d], A @ B @ C @ d),
        program=lambda library, A, B, C, d: A @ (B @ (C @ d)),
        closed=chain_vjp,
        sizes=tuple({"n": n} for n in (4, 16, 64, 256, 1024)),
        flops=lambda n: 13 * n**2,
    ),
    Row(
        title="a * b",
        kind="jacobian",
        function=dx.function("hadamard", [a, b], a * b, wrt=[a]),
        program=lambda library, a, b: a * b,
        closed=lambda a, b: np.diag(b),
        sizes=tuple({"n": n} for n in (3, 10, 100, 1000)),
        larger=({"n": 8000},),
        flops=lambda n: n,
    ),
]
