"""Batches of matrices of a few rows."""

from __future__ import annotations

import numpy as np

import derivatrix as dx
from tests.benchmarks.record import Arrays, Row, Sizes
from tests.benchmarks.rows.inputs import conditioned, covariance

n = dx.dims("n")
BATCHES = tuple({"batch": 10**k} for k in range(6))
X = dx.matrix("X", 3, 3)
A, b = dx.matrix("A", 3, 3), dx.vector("b", 3)
S, C = dx.matrix("S", 4, 4, "spd"), dx.matrix("C", 4, 4, "symmetric")
B, c = dx.matrix("B", n, n), dx.vector("c", n)


def square_vjp(X: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
    Xt = X.swapaxes(1, 2)
    return cotangent @ Xt + Xt @ cotangent


def solve_vjp(A: np.ndarray, b: np.ndarray, cotangent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = np.linalg.solve(A, b[:, :, None])[:, :, 0]
    z = np.linalg.solve(A.swapaxes(1, 2), cotangent[:, :, None])[:, :, 0]
    return -z[:, :, None] * x[:, None, :], z


def nll_gradient(S: np.ndarray, C: np.ndarray) -> np.ndarray:
    inverse = np.linalg.inv(S)
    return inverse - inverse @ C @ inverse


def systems(generator: np.random.Generator, sizes: Sizes) -> Arrays:
    batch = sizes["batch"]
    if "n" in sizes:
        return {"B": conditioned(generator, batch, sizes["n"], sizes["n"])}
    return {"A": conditioned(generator, batch, 3, 3)}


def covariances(generator: np.random.Generator, sizes: Sizes) -> Arrays:
    return {name: covariance(generator, sizes["batch"], 4, 4) for name in "SC"}


ROWS = [
    Row(
        title="X X, batches of 3×3",
        kind="vjp",
        function=dx.function("squares", [X], X @ X, batch=[X]),
        program=lambda library, X: X @ X,
        closed=square_vjp,
        sizes=BATCHES,
        larger=({"batch": 1_000_000},),
        flops=lambda batch: batch * 4 * 27,
    ),
    Row(
        title="solve(A, b), batches of 3×3",
        kind="vjp",
        function=dx.function("solves", [A, b], dx.solve(A, b), batch=[A, b]),
        program=lambda library, A, b: library.solve(A, b),
        closed=solve_vjp,
        sizes=BATCHES,
        larger=({"batch": 1_000_000},),
        flops=lambda batch: batch * 70,
        draw=systems,
    ),
    Row(
        title="logdet(S) + tr(S⁻¹ C), batches of 4×4",
        kind="gradient",
        function=dx.function(
            "nlls", [S, C], dx.logdet(S) + dx.trace(dx.inv(S) @ C), wrt=[S], batch=[S, C]
        ),
        program=lambda library, S, C: library.logdet(S) + library.trace(library.solve(S, C)),
        closed=nll_gradient,
        sizes=BATCHES,
        larger=({"batch": 1_000_000},),
        flops=lambda batch: batch * 5 * 64,
        draw=covariances,
    ),
    Row(
        title="solve(B, c), batches of n×n",
        kind="vjp",
        function=dx.function("many_solves", [B, c], dx.solve(B, c), batch=[B, c]),
        program=lambda library, B, c: library.solve(B, c),
        closed=solve_vjp,
        sizes=tuple({"batch": 1000, "n": n} for n in (2, 4, 8, 16, 32)),
        flops=lambda batch, n: batch * (2 * n**3 / 3 + 5 * n**2),
        draw=systems,
    ),
]
