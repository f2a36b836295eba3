"""Filters, cameras and mixtures: many small problems, or sums over many samples."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.special

import derivatrix as dx
from tests.benchmarks.record import TRANSCENDENTAL, Arrays, Row, Sizes
from tests.benchmarks.rows.inputs import covariance, scaled

n, m, N, K, d = dx.dims("n m N K d")
w, t, p = dx.vector("w", 3), dx.vector("t", 3), dx.vector("p", 3)
lens = dx.vector("lens", 3)
S, a = dx.matrix("S", N, d), dx.vector("a", K)
mu, q = dx.matrix("mu", K, d), dx.matrix("q", K, d)
U = dx.tensor("U", K, d, d)


def kalman(library: Any, x: Any, P: Any, H: Any, R: Any, z: Any) -> Any:
    return x + P @ (H.T @ library.solve(H @ P @ H.T + R, z - H @ x))


def kalman_function(name: str, n: Any, m: Any, batched: bool) -> dx.Function:
    x, z, H = dx.vector("x", n), dx.vector("z", m), dx.matrix("H", m, n)
    P, R = dx.matrix("P", n, n, "spd"), dx.matrix("R", m, m, "spd")
    return dx.function(
        name,
        [x, P, H, R, z],
        kalman(dx, x, P, H, R, z),
        wrt=[x, P, z],
        batch=[x, P, z] if batched else [],
    )


def kalman_vjp(
    x: np.ndarray,
    P: np.ndarray,
    H: np.ndarray,
    R: np.ndarray,
    z: np.ndarray,
    cotangent: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute the VJP of x + P Hᵀ v with v = (H P Hᵀ + R)⁻¹ (z - H x), for one or a batch."""
    inverse = np.linalg.inv(H @ P @ H.T + R)
    v = (inverse @ (z - x @ H.T)[..., None])[..., 0]
    u = (inverse @ ((P @ cotangent[..., None])[..., 0] @ H.T)[..., None])[..., 0]
    rest = cotangent - u @ H
    return rest, rest[..., :, None] * (v @ H)[..., None, :], u


def filters(generator: np.random.Generator, sizes: Sizes) -> Arrays:
    n, m = sizes.get("n", 6), sizes.get("m", 3)
    stacked = (sizes["batch"],) if "batch" in sizes else ()
    return {"P": covariance(generator, *stacked, n, n), "R": covariance(generator, m, m)}


def kalman_row(
    title: str, function: dx.Function, sizes: tuple[Sizes, ...], larger: tuple[Sizes, ...] = ()
) -> Row:
    return Row(
        title=title,
        kind="vjp",
        function=function,
        program=kalman,
        closed=kalman_vjp,
        sizes=sizes,
        larger=larger,
        flops=kalman_flops,
        draw=filters,
    )


def kalman_flops(batch: int = 1, n: int = 6, m: int = 3) -> float:
    return batch * (2 * n * n * m + 2 * n * m * m + m**3 + 8 * n * m + 2 * n * n)


def projection(library: Any, w: Any, t: Any, lens: Any, p: Any) -> Any:
    """A camera of Bundle Adjustment in the Large (Agarwal et al. 2010): a rotation vector, a
    translation, focal length and two coefficients of distortion; a point."""
    angle = library.sqrt(library.dot(w, w))
    axis = w / angle
    along, across = axis * library.dot(axis, p), library.cross(axis, p)
    turned = library.cos(angle) * (p - along) + library.sin(angle) * across + along + t
    flat = -turned[:2] / turned[2]
    square = library.dot(flat, flat)
    return lens[0] * (1 + lens[1] * square + lens[2] * square**2) * flat


def camera() -> dx.Function:
    names = ("sqrt", "cos", "sin", "dot")
    library = SimpleNamespace(**{name: getattr(dx, name) for name in names})
    library.cross = lambda a, b: dx.skew(a) @ b
    inputs = [w, t, lens, p]
    return dx.function("camera", inputs, projection(library, *inputs), batch=inputs)


def projection_jacobian(
    w: np.ndarray, t: np.ndarray, lens: np.ndarray, p: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The chain rule by hand; the rotation by its vector after G. Gallego and A. Yezzi, A compact
    formula for the derivative of a 3-D rotation in exponential coordinates (2015)."""
    square = (w * w).sum(axis=1)[:, None, None]
    angle, W = np.sqrt(square), crosses(w)
    sine, cosine = np.sin(angle) / angle, (1 - np.cos(angle)) / square
    turn = np.eye(3) + sine * W + cosine * (W @ W)
    outer = w[:, :, None] * w[:, None, :]
    by_w = outer + (turn.swapaxes(1, 2) - np.eye(3)) @ W
    by_w = -(turn @ crosses(p) @ by_w) / square
    turned = (turn @ p[:, :, None])[:, :, 0] + t
    flat = -turned[:, :2] / turned[:, 2:]
    by_turned = np.zeros((len(p), 2, 3))
    by_turned[:, 0, 0] = by_turned[:, 1, 1] = -1 / turned[:, 2]
    by_turned[:, :, 2] = -flat / turned[:, 2:]
    s = (flat * flat).sum(axis=1)[:, None]
    focal, k1, k2 = lens[:, :1], lens[:, 1:2], lens[:, 2:]
    stretch = 1 + k1 * s + k2 * s * s
    slope = 2 * focal * (k1 + 2 * k2 * s)
    by_flat = (focal * stretch)[:, :, None] * np.eye(2)
    by_flat = by_flat + slope[:, :, None] * flat[:, :, None] * flat[:, None, :]
    by_t = by_flat @ by_turned
    by_lens = np.stack([stretch * flat, focal * s * flat, focal * s * s * flat], axis=2)
    return by_t @ by_w, by_t, by_lens, by_t @ turn


def crosses(vectors: np.ndarray) -> np.ndarray:
    """The matrices of the cross products by vectors."""
    matrices = np.zeros((len(vectors), 3, 3))
    for row, column, entry in ((2, 1, 0), (0, 2, 1), (1, 0, 2)):
        matrices[:, row, column] = vectors[:, entry]
        matrices[:, column, row] = -vectors[:, entry]
    return matrices


def cameras(generator: np.random.Generator, sizes: Sizes) -> Arrays:
    count = sizes["batch"]
    return {
        "t": generator.normal(size=(count, 3)) + np.array([0, 0, 9]),
        "lens": 1 + 0.1 * generator.normal(size=(count, 3)),
    }


def mixture(library: Any, S: Any, a: Any, mu: Any, q: Any) -> Any:
    """The log likelihood of a mixture of Gaussians with weights softmax(a), means mu and
    diagonal precisions exp(2 q), up to a constant."""
    scaled = library.exp(q) * (S[:, None] - mu)
    logs = a + library.sum(q, 1) - library.sum(scaled**2, 2) / 2
    count = S.shape[0]
    return library.sum(library.logsumexp(logs, axis=1)) - count * library.logsumexp(a, axis=0)


def mixture_gradient(
    S: np.ndarray, a: np.ndarray, mu: np.ndarray, q: np.ndarray
) -> tuple[np.ndarray, ...]:
    scaled = np.exp(q) * (S[:, None] - mu)
    squares = scaled * scaled
    r = scipy.special.softmax(a + q.sum(axis=1) - squares.sum(axis=2) / 2, axis=1)
    totals = r.sum(axis=0)
    by_mu = np.exp(q) * np.einsum("nk,nkd->kd", r, scaled)
    by_q = totals[:, None] - np.einsum("nk,nkd->kd", r, squares)
    return totals - len(S) * scipy.special.softmax(a), by_mu, by_q


def full_mixture(library: Any, S: Any, a: Any, mu: Any, U: Any) -> Any:
    """The log likelihood of a mixture of Gaussians with weights exp(a), means mu and precisions
    U Uᵀ, up to a constant; a has the determinants of U, too."""
    scaled = (S - mu[:, None]) @ U
    logs = a[:, None] - library.sum(scaled**2, 2) / 2
    return library.sum(library.logsumexp(logs, axis=0))


def full_mixture_gradient(
    S: np.ndarray, a: np.ndarray, mu: np.ndarray, U: np.ndarray
) -> tuple[np.ndarray, ...]:
    difference = S - mu[:, None]
    scaled = difference @ U
    r = scipy.special.softmax(a[:, None] - (scaled * scaled).sum(axis=2) / 2, axis=0)
    scaled *= r[:, :, None]
    by_mu = (U @ scaled.sum(axis=1)[:, :, None])[:, :, 0]
    return r.sum(axis=1), by_mu, -difference.swapaxes(1, 2) @ scaled


def factors(generator: np.random.Generator, sizes: Sizes) -> Arrays:
    return {"U": scaled(generator, sizes["K"], sizes["d"], sizes["d"])}


ROWS = [
    kalman_row(
        "Kalman update",
        kalman_function("kalman", n, m, batched=False),
        ({"n": 6, "m": 3}, {"n": 12, "m": 6}, {"n": 40, "m": 20}),
    ),
    kalman_row(
        "Kalman update, literal sizes",
        kalman_function("kalman_6_3", 6, 3, batched=False),
        ({},),
    ),
    kalman_row(
        "Kalman updates",
        kalman_function("kalmans", n, m, batched=True),
        tuple({"batch": batch, "n": 6, "m": 3} for batch in (10, 1000, 10000)),
    ),
    kalman_row(
        "Kalman updates, literal sizes",
        kalman_function("kalmans_6_3", 6, 3, batched=True),
        tuple({"batch": batch} for batch in (10, 1000, 10000)),
        larger=({"batch": 1_000_000},),
    ),
    Row(
        title="camera projection",
        kind="jacobian",
        function=camera(),
        program=projection,
        closed=projection_jacobian,
        sizes=tuple({"batch": batch} for batch in (1, 100, 10000, 100000)),
        larger=({"batch": 1_000_000},),
        flops=lambda batch: batch * (250 + 3 * TRANSCENDENTAL),
        draw=cameras,
    ),
    Row(
        title="Gaussian mixture",
        kind="gradient",
        function=dx.function("mixture", [S, a, mu, q], mixture(dx, S, a, mu, q), wrt=[a, mu, q]),
        program=mixture,
        closed=mixture_gradient,
        sizes=(
            {"N": 100, "K": 5, "d": 2},
            {"N": 1000, "K": 10, "d": 5},
            {"N": 1000, "K": 25, "d": 10},
            {"N": 10000, "K": 10, "d": 10},
        ),
        flops=lambda N, K, d: N * K * (8 * d + TRANSCENDENTAL),
        without={"casadi": "CasADi's arrays have two axes"},
    ),
    Row(
        title="Gaussian mixture, a matrix each",
        kind="gradient",
        function=dx.function(
            "full_mixture", [S, a, mu, U], full_mixture(dx, S, a, mu, U), wrt=[a, mu, U]
        ),
        program=full_mixture,
        closed=full_mixture_gradient,
        sizes=(
            {"N": 100, "K": 5, "d": 2},
            {"N": 1000, "K": 25, "d": 10},
            {"N": 1000, "K": 10, "d": 32},
        ),
        flops=lambda N, K, d: N * K * (4 * d * d + 8 * d + TRANSCENDENTAL),
        draw=factors,
        without={"casadi": "CasADi's arrays have two axes"},
    ),
]
