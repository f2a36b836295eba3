"""Linear solves, Cholesky factors and what statistics makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

import derivatrix as dx
from tests.benchmarks.record import TRANSCENDENTAL, Arrays, Row, Sizes
from tests.benchmarks.rows.inputs import conditioned, covariance, scaled

n, k = dx.dims("n k")
A, b, y = dx.matrix("A", n, n), dx.vector("b", n), dx.vector("y", n)
S, C = dx.matrix("S", n, n, "spd"), dx.matrix("C", n, n, "symmetric")
B, X = dx.matrix("B", n, n, "symmetric"), dx.matrix("X", n, k)
s, r, t = (dx.scalar(name, "positive") for name in "srt")
D = dx.matrix("D", n, n, "symmetric")


def system(generator: np.random.Generator, sizes: Sizes) -> Arrays:
    return {"A": conditioned(generator, sizes["n"], sizes["n"])}


def covariances(generator: np.random.Generator, sizes: Sizes) -> Arrays:
    return {name: covariance(generator, sizes["n"], sizes["n"]) for name in "SC"}


def quotient_inputs(generator: np.random.Generator, sizes: Sizes) -> Arrays:
    return covariances(generator, sizes) | {"X": scaled(generator, sizes["n"], sizes["k"])}


def distances(generator: np.random.Generator, sizes: Sizes) -> Arrays:
    points = generator.normal(size=(sizes["n"], 3))
    D = ((points[:, None] - points) ** 2).sum(axis=-1)
    return {"D": D, "s": np.array(1.2), "r": np.array(0.8), "t": np.array(0.5)}


def solve_vjp(A: np.ndarray, b: np.ndarray, cotangent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    factors = scipy.linalg.lu_factor(A)
    x = scipy.linalg.lu_solve(factors, b)
    z = scipy.linalg.lu_solve(factors, cotangent, trans=1)
    return -np.outer(z, x), z


def solve_jacobian(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    inverse = scipy.linalg.inv(A)
    return -inverse[:, :, None] * (inverse @ b)


def nll_gradient(S: np.ndarray, C: np.ndarray) -> np.ndarray:
    inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(S), np.eye(len(S), dtype=S.dtype))
    return inverse - inverse @ C @ inverse


def cholesky_vjp(S: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
    """I. Murray, Differentiation of the Cholesky decomposition (2016)."""
    L = scipy.linalg.cholesky(S, lower=True)
    P = np.tril(L.T @ np.tril(cotangent))
    P[np.diag_indices_from(P)] /= 2
    half = scipy.linalg.solve_triangular(L, P, trans=1, lower=True)
    bar = scipy.linalg.solve_triangular(L, half.T, trans=1, lower=True)
    return (bar + bar.T) / 2


def quotient_gradient(X: np.ndarray, S: np.ndarray, C: np.ndarray) -> np.ndarray:
    below, above = X.T @ S @ X, X.T @ C @ X
    right = scipy.linalg.solve(below, X.T, assume_a="pos")
    return 2 * (C @ right.T - S @ right.T @ scipy.linalg.solve(below, above, assume_a="pos").T)


def process_gradient(
    D: np.ndarray, y: np.ndarray, s: np.ndarray, r: np.ndarray, t: np.ndarray
) -> tuple[float, ...]:
    """Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), 5.9."""
    E = np.exp(-D / (2 * r**2))
    kernel = s**2 * E + t**2 * np.eye(len(y))
    inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(kernel), np.eye(len(y)))
    a = inverse @ y
    M = inverse - np.outer(a, a)
    return (
        float(s * (M * E).sum()),
        float(s**2 / (2 * r**3) * (M * E * D).sum()),
        float(t * np.trace(M)),
    )


def process(library: Any, D: Any, y: Any, s: Any, r: Any, t: Any) -> Any:
    kernel = s**2 * library.exp(-D / (2 * r**2)) + t**2 * library.eye(D)
    L = library.cholesky(kernel)
    a = library.triangular(L, y)
    return library.dot(a, a) / 2 + library.sum(library.log(library.diagonal(L)))


def process_by_solve(library: Any, D: Any, y: Any, s: Any, r: Any, t: Any) -> Any:
    kernel = s**2 * library.exp(-D / (2 * r**2)) + t**2 * library.eye(D)
    return library.dot(y, library.solve(kernel, y)) / 2 + library.logdet(kernel) / 2


def nll_by_cholesky(library: Any, S: Any, C: Any) -> Any:
    L = library.cholesky(S)
    half = library.triangular(L, C)
    quadratic = library.trace(library.triangular(L, half.T))
    return 2 * library.sum(library.log(library.diagonal(L))) + quadratic


KERNEL = s**2 * dx.exp(-D / (2 * r**2)) + t**2 * dx.eye(n)

ROWS = [
    Row(
        title="solve(A, b)",
        kind="vjp",
        function=dx.function("solve", [A, b], dx.solve(A, b)),
        program=lambda library, A, b: library.solve(A, b),
        closed=solve_vjp,
        sizes=tuple({"n": n} for n in (5, 10, 20, 50, 100, 200, 300)),
        flops=lambda n: 2 * n**3 / 3 + 5 * n**2,
        draw=system,
        dtypes=("float64", "float32"),
    ),
    Row(
        title="solve(A, b) by A",
        kind="jacobian",
        function=dx.function("solve_by_matrix", [A, b], dx.solve(A, b), wrt=[A]),
        program=lambda library, A, b: library.solve(A, b),
        closed=solve_jacobian,
        sizes=tuple({"n": n} for n in (5, 10, 30, 60)),
        flops=lambda n: 3 * n**3,
        draw=system,
    ),
    Row(
        title="logdet(S) + tr(S⁻¹ C)",
        kind="gradient",
        function=dx.function("nll", [S, C], dx.logdet(S) + dx.trace(dx.inv(S) @ C), wrt=[S]),
        program=lambda library, S, C: library.logdet(S) + library.trace(library.solve(S, C)),
        programs=(nll_by_cholesky,),
        closed=nll_gradient,
        sizes=tuple({"n": n} for n in (5, 10, 20, 50, 100, 300)),
        flops=lambda n: 5 * n**3,
        draw=covariances,
        dtypes=("float64", "float32"),
    ),
    Row(
        title="cholesky(S)",
        kind="vjp",
        function=dx.function("factor", [S], dx.cholesky(S)),
        program=lambda library, S: library.cholesky(S),
        closed=cholesky_vjp,
        sizes=tuple({"n": n} for n in (5, 10, 20, 50, 100, 300)),
        flops=lambda n: 8 * n**3 / 3,
        draw=lambda generator, sizes: {"S": covariance(generator, sizes["n"], sizes["n"])},
    ),
    Row(
        title="Gaussian process likelihood",
        kind="gradient",
        function=dx.function(
            "process",
            [D, y, s, r, t],
            y @ dx.solve(KERNEL, y) / 2 + dx.logdet(KERNEL) / 2,
            wrt=[s, r, t],
        ),
        program=process,
        programs=(process_by_solve,),
        closed=process_gradient,
        sizes=tuple({"n": n} for n in (10, 30, 100, 300)),
        flops=lambda n: n**3 + n**2 * (8 + TRANSCENDENTAL),
        draw=distances,
    ),
    Row(
        title="tr((Xᵀ S X)⁻¹ Xᵀ C X) by X",
        kind="gradient",
        function=dx.function(
            "quotient", [X, S, C], dx.trace(dx.inv(X.T @ S @ X) @ (X.T @ C @ X)), wrt=[X]
        ),
        program=lambda library, X, S, C: library.trace(library.solve(X.T @ S @ X, X.T @ C @ X)),
        closed=quotient_gradient,
        sizes=tuple({"n": n, "k": k} for n, k in ((6, 2), (20, 3), (100, 10), (300, 20))),
        flops=lambda n, k: 4 * n * n * k + 8 * n * k * k + 3 * k**3,
        draw=quotient_inputs,
    ),
]
