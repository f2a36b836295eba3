"""Matrix equations and matrix functions."""

from __future__ import annotations

import numpy as np
import scipy.linalg

import derivatrix as dx
from tests.benchmarks.record import Arrays, Row, Sizes
from tests.benchmarks.rows.inputs import conditioned, covariance, scaled

n, m = dx.dims("n m")
A, B, C = dx.matrix("A", n, n), dx.matrix("B", m, m), dx.matrix("C", n, m)
G, Q, R = dx.matrix("G", n, m), dx.matrix("Q", n, n, "spd"), dx.matrix("R", m, m, "spd")
X = dx.matrix("X", n, n)


def coefficients(generator: np.random.Generator, sizes: Sizes) -> Arrays:
    n, m = sizes["n"], sizes["m"]
    return {"A": conditioned(generator, n, n), "B": conditioned(generator, m, m)}


def plant(generator: np.random.Generator, sizes: Sizes) -> Arrays:
    n, m = sizes["n"], sizes["m"]
    return {
        "A": scaled(generator, n, n) / 2 - np.eye(n),
        "G": scaled(generator, n, m),
        "Q": covariance(generator, n, n),
        "R": covariance(generator, m, m),
    }


def sylvester_vjp(
    A: np.ndarray, B: np.ndarray, C: np.ndarray, cotangent: np.ndarray
) -> tuple[np.ndarray, ...]:
    Y = scipy.linalg.solve_sylvester(A, B, C)
    Z = scipy.linalg.solve_sylvester(A.T, B.T, cotangent)
    return -Z @ Y.T, -Y.T @ Z, Z


def riccati_vjp(
    A: np.ndarray, G: np.ndarray, Q: np.ndarray, R: np.ndarray, cotangent: np.ndarray
) -> tuple[np.ndarray, ...]:
    """T.-C. Kao and G. Hennequin, Automatic differentiation of Sylvester, Lyapunov, and algebraic
    Riccati equations (2020)."""
    P = scipy.linalg.solve_continuous_are(A, G, Q, R)
    gain = scipy.linalg.solve(R, G.T @ P, assume_a="pos")
    symmetric = (cotangent + cotangent.T) / 2
    S = scipy.linalg.solve_continuous_lyapunov(A - G @ gain, -symmetric)
    return 2 * P @ S, -2 * P @ S @ gain.T, S, gain @ S @ gain.T


NOT_THERE = {
    "sylvester": "there is no solver of Sylvester equations",
    "riccati": "there is no solver of Riccati equations with a derivative",
    "expm": "there is no matrix exponential with a derivative",
}

ROWS = [
    Row(
        title="A Y + Y B = C",
        kind="vjp",
        function=dx.function("sylvester", [A, B, C], dx.solve_sylvester(A, B, C)),
        program=lambda library, A, B, C: library.sylvester(A, B, C),
        closed=sylvester_vjp,
        sizes=tuple({"n": n, "m": m} for n, m in ((3, 2), (10, 8), (30, 30), (100, 100))),
        flops=lambda n, m: 25 * (n**3 + m**3) + 10 * n * m * (n + m),
        draw=coefficients,
        without=dict.fromkeys(("torch", "casadi"), NOT_THERE["sylvester"]),
    ),
    Row(
        title="continuous Riccati equation",
        kind="vjp",
        function=dx.function("riccati", [A, G, Q, R], dx.solve_continuous_are(A, G, Q, R)),
        program=lambda library, A, G, Q, R: library.riccati(A, G, Q, R),
        closed=riccati_vjp,
        sizes=tuple({"n": n, "m": m} for n, m in ((4, 2), (10, 3), (30, 5), (60, 10))),
        flops=lambda n, m: 25 * (2 * n) ** 3 + 35 * n**3,
        draw=plant,
        without=dict.fromkeys(
            ("jax", "torch", "pytensor", "casadi", "autograd"), NOT_THERE["riccati"]
        ),
        tolerance=1e-7,
    ),
    Row(
        title="expm(X)",
        kind="vjp",
        function=dx.function("exponential", [X], dx.expm(X)),
        program=lambda library, X: library.expm(X),
        closed=lambda X, cotangent: scipy.linalg.expm_frechet(X.T, cotangent, compute_expm=False),
        sizes=tuple({"n": n} for n in (5, 10, 20, 30, 50, 100)),
        flops=lambda n: 40 * n**3,
        draw=lambda generator, sizes: {"X": scaled(generator, sizes["n"], sizes["n"])},
        without=dict.fromkeys(("casadi", "autograd"), NOT_THERE["expm"]),
    ),
]
