"""Classification and regression: many samples, one set of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.special

import derivatrix as dx
from tests.benchmarks.record import TRANSCENDENTAL, Arrays, Row, Sizes
from tests.benchmarks.rows.inputs import scaled

c, d, N = dx.dims("c d N")
W, b, x = dx.matrix("W", c, d), dx.vector("b", c), dx.vector("x", d)
A, w, y = dx.matrix("A", N, d), dx.vector("w", d), dx.vector("y", N)


def softmax_jacobian(x: np.ndarray, W: np.ndarray, b: np.ndarray) -> np.ndarray:
    p = scipy.special.softmax(x @ W.T + b, axis=1)
    return p[:, :, None] * (W - (p @ W)[:, None, :])


def logistic_hessian(A: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    s = scipy.special.expit(y * (A @ w))
    return A.T @ ((y**2 * s * (1 - s))[:, None] * A)


def poisson_step(A: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    mean = np.exp(A @ w)
    hessian = A.T @ (mean[:, None] * A) + np.eye(len(w))
    return scipy.linalg.solve(hessian, A.T @ (mean - y) + w, assume_a="pos")


def poisson(library: Any, A: Any, y: Any, w: Any) -> Any:
    logs = A @ w
    return library.sum(library.exp(logs) - y * logs) + library.dot(w, w) / 2


def signs(generator: np.random.Generator, sizes: Sizes) -> Arrays:
    return {
        "A": scaled(generator, sizes["N"], sizes["d"]),
        "y": generator.choice([-1.0, 1.0], sizes["N"]),
    }


def counts(generator: np.random.Generator, sizes: Sizes) -> Arrays:
    return {
        "A": scaled(generator, sizes["N"], sizes["d"]),
        "y": generator.poisson(2.0, sizes["N"]),
    }


ROWS = [
    Row(
        title="softmax classifier",
        kind="jacobian",
        function=dx.function("classifier", [x, W, b], dx.softmax(W @ x + b), wrt=[x], batch=[x]),
        program=lambda library, x, W, b: library.softmax(W @ x + b),
        closed=softmax_jacobian,
        sizes=(
            {"batch": 1, "d": 16, "c": 4},
            {"batch": 16, "d": 32, "c": 10},
            {"batch": 256, "d": 128, "c": 10},
            {"batch": 1024, "d": 64, "c": 10},
            {"batch": 4096, "d": 64, "c": 10},
        ),
        larger=({"batch": 65536, "d": 64, "c": 10},),
        flops=lambda batch, d, c: batch * c * (6 * d + TRANSCENDENTAL),
        dtypes=("float64", "float32"),
    ),
    Row(
        title="logistic regression",
        kind="hessian",
        function=dx.function("logistic", [A, y, w], dx.sum(dx.softplus(-y * (A @ w))), wrt=[w]),
        program=lambda library, A, y, w: library.sum(library.softplus(-y * (A @ w))),
        closed=logistic_hessian,
        sizes=(
            {"N": 200, "d": 100},
            {"N": 2000, "d": 200},
            {"N": 2000, "d": 500},
            {"N": 4000, "d": 1000},
        ),
        flops=lambda N, d: N * (d * (d + 3) + 2 * TRANSCENDENTAL),
        draw=signs,
        dtypes=("float64", "float32"),
    ),
    Row(
        title="Poisson regression",
        kind="newton",
        function=dx.function("poisson", [A, y, w], poisson(dx, A, y, w), wrt=[w]),
        program=poisson,
        closed=poisson_step,
        sizes=(
            {"N": 100, "d": 5},
            {"N": 1000, "d": 30},
            {"N": 2000, "d": 200},
            {"N": 4000, "d": 500},
        ),
        flops=lambda N, d: N * (d * (d + 5) + TRANSCENDENTAL) + d**3 / 3,
        draw=counts,
    ),
]
