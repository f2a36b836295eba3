"""Neural networks and attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.special
import sympy

import derivatrix as dx
from tests.benchmarks.record import TRANSCENDENTAL, Arrays, Row, Sizes
from tests.benchmarks.rows.inputs import scaled

LAYERS = 10
n, N, d, h, c = dx.dims("n N d h c")
X, Y = dx.matrix("X", N, d), dx.matrix("Y", N, c)
W1, W2 = dx.matrix("W1", h, d), dx.matrix("W2", c, h)
x, y = dx.vector("x", n), dx.vector("y", n)
S, Z = dx.matrix("S", N, n), dx.matrix("Z", N, n)
WEIGHTS = [dx.matrix(f"W{layer}", n, n) for layer in range(LAYERS)]
Q, K, V = dx.matrix("Q", n, d), dx.matrix("K", n, d), dx.matrix("V", n, d)
Pair = tuple[np.ndarray, np.ndarray, np.ndarray]


def rectified(A: np.ndarray) -> Pair:
    """A function's value, first and second derivative."""
    positive = (A > 0).astype(A.dtype)
    return A * positive, positive, np.zeros_like(A)


def tanned(A: np.ndarray) -> Pair:
    t = np.tanh(A)
    return t, 1 - t * t, -2 * t * (1 - t * t)


def small_hessian(activation: Callable[[np.ndarray], Pair]) -> Callable[..., np.ndarray]:
    """Make the Hessian of the squared error of two layers, by the first: Σ_n C_n ⊗ x_n x_nᵀ, where
    C_n is the curvature by the activations' arguments."""

    def hessian(X: np.ndarray, Y: np.ndarray, W1: np.ndarray, W2: np.ndarray) -> np.ndarray:
        (N, d), h = X.shape, len(W1)
        value, first, second = activation(X @ W1.T)
        slopes = 2 * (value @ W2.T - Y) @ W2
        C = 2 * (W2.T @ W2) * first[:, :, None] * first[:, None, :]
        C[:, np.arange(h), np.arange(h)] += slopes * second
        pairs = (X[:, :, None] * X[:, None, :]).reshape(N, d * d)
        H = (C.reshape(N, h * h).T @ pairs).reshape(h, h, d, d)
        return np.ascontiguousarray(H.transpose(0, 2, 1, 3))

    return hessian


def small(name: str, activation: Any, closed: Callable[[np.ndarray], Pair]) -> Row:
    residual = activation(X @ W1.T) @ W2.T - Y
    return Row(
        title=f"two layers, {name}, by the first",
        kind="hessian",
        function=dx.function(f"small_{name}", [X, Y, W1, W2], dx.sum(residual**2), wrt=[W1]),
        program=lambda library, X, Y, W1, W2: library.sum(
            (getattr(library, name)(X @ W1.T) @ W2.T - Y) ** 2
        ),
        closed=small_hessian(closed),
        sizes=(
            {"N": 1, "d": 8, "h": 8, "c": 3},
            {"N": 20, "d": 10, "h": 10, "c": 5},
            {"N": 50, "d": 20, "h": 20, "c": 5},
            {"N": 200, "d": 30, "h": 30, "c": 10},
        ),
        flops=lambda N, d, h, c: N * h * (h + 1) * d * (d + 1) / 2 + N * h * h,
        tolerance=1e-8,
    )


def deep(library: Any, sample: Any, weights: Any) -> Any:
    """Ten layers."""
    for weight in weights:
        sample = library.tanh(weight @ sample)
    return sample


def deep_rows(library: Any, samples: Any, weights: Any) -> Any:
    """Ten layers of samples in rows."""
    for weight in weights:
        samples = library.tanh(samples @ weight.T)
    return samples


def cross_entropy(library: Any, outputs: Any, targets: Any) -> Any:
    """Compute the cross entropy of the outputs' softmax, summed over rows if there are several."""
    return -library.sum(targets * library.log_softmax(outputs))


def deep_gradient(S: np.ndarray, Z: np.ndarray, *weights: np.ndarray) -> list[np.ndarray]:
    layers = [S]
    for weight in weights:
        layers.append(np.tanh(layers[-1] @ weight.T))
    p = scipy.special.softmax(layers[-1], axis=1)
    back = p * Z.sum(axis=1, keepdims=True) - Z
    gradients = []
    for layer in reversed(range(len(weights))):
        back = back * (1 - layers[layer + 1] ** 2)
        gradients.append(back.T @ layers[layer])
        back = back @ weights[layer]
    return gradients[::-1]


def deep_hessian(x: np.ndarray, y: np.ndarray, *weights: np.ndarray) -> np.ndarray:
    """C ⊗ x xᵀ with the curvature C by the first layer's products, which goes back layer by
    layer as W C Wᵀ does, with the second derivative of tanh on its diagonal."""
    layers = [x]
    for weight in weights:
        layers.append(np.tanh(weight @ layers[-1]))
    p = scipy.special.softmax(layers[-1])
    slope, C = p * y.sum() - y, y.sum() * (np.diag(p) - np.outer(p, p))
    for layer in reversed(range(len(weights))):
        t = layers[layer + 1]
        first, second = 1 - t * t, -2 * t * (1 - t * t)
        C = first[:, None] * C * first + np.diag(slope * second)
        slope = slope * first
        if layer:
            C, slope = weights[layer].T @ C @ weights[layer], weights[layer].T @ slope
    return C[:, None, :, None] * x[:, None, None] * x


def five_hessian(X: np.ndarray, Y: np.ndarray, *weights: np.ndarray) -> np.ndarray:
    """`deep_hessian` of five layers of samples in rows with a squared error: Σ_n C_n ⊗ x_n x_nᵀ."""
    layers, corner = [X], np.arange(len(weights[0]))
    for weight in weights:
        layers.append(np.tanh(layers[-1] @ weight.T))
    slope, C = 2 * (layers[-1] - Y), np.zeros((len(X), len(corner), len(corner)))
    C[:, corner, corner] = 2
    for layer in reversed(range(len(weights))):
        t = layers[layer + 1]
        first, second = 1 - t * t, -2 * t * (1 - t * t)
        C *= first[:, :, None] * first[:, None, :]
        C[:, corner, corner] += slope * second
        slope = slope * first
        if layer:
            C, slope = weights[layer].T @ C @ weights[layer], slope @ weights[layer]
    pairs = (X[:, :, None] * X[:, None, :]).reshape(len(X), -1)
    blocks = (C.reshape(len(X), -1).T @ pairs).reshape([len(corner)] * 4)
    return np.ascontiguousarray(blocks.transpose(0, 2, 1, 3))


def attention_vjp(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, cotangent: np.ndarray
) -> tuple[np.ndarray, ...]:
    scale = Q.shape[-1] ** 0.5
    P = scipy.special.softmax(Q @ K.swapaxes(-1, -2) / scale, axis=-1)
    back = cotangent @ V.swapaxes(-1, -2)
    back = P * (back - (back * P).sum(axis=-1, keepdims=True)) / scale
    return back @ K, back.swapaxes(-1, -2) @ Q, P.swapaxes(-1, -2) @ cotangent


def attention(library: Any, Q: Any, K: Any, V: Any) -> Any:
    return library.softmax(Q @ K.T / library.width(Q) ** 0.5) @ V


def weights(generator: np.random.Generator, sizes: Sizes, count: int = LAYERS) -> Arrays:
    n = sizes["n"]
    return {f"W{layer}": 1.2 * scaled(generator, n, n) for layer in range(count)}


ATTENTION = dx.softmax(Q @ K.T / sympy.sqrt(d)) @ V

ROWS = [
    small("relu", dx.relu, rectified),
    small("tanh", dx.tanh, tanned),
    Row(
        title="ten layers",
        kind="gradient",
        function=dx.function(
            "deep", [S, Z, *WEIGHTS], cross_entropy(dx, deep_rows(dx, S, WEIGHTS), Z), wrt=WEIGHTS
        ),
        program=lambda library, S, Z, *weights: cross_entropy(
            library, deep_rows(library, S, weights), Z
        ),
        closed=deep_gradient,
        sizes=tuple({"N": N, "n": n} for N, n in ((1, 8), (16, 32), (64, 64), (128, 128))),
        flops=lambda N, n: LAYERS * N * n * (6 * n + TRANSCENDENTAL),
        draw=weights,
        dtypes=("float64", "float32"),
    ),
    Row(
        title="ten layers, by the first",
        kind="hessian",
        function=dx.function(
            "deepest",
            [x, y, *WEIGHTS],
            cross_entropy(dx, deep(dx, x, WEIGHTS), y),
            wrt=WEIGHTS[:1],
        ),
        program=lambda library, x, y, *weights: cross_entropy(
            library, deep(library, x, weights), y
        ),
        closed=deep_hessian,
        sizes=tuple({"n": n} for n in (4, 8, 16, 32)),
        flops=lambda n: 4 * (LAYERS - 1) * n**3 + n**4,
        draw=weights,
    ),
    Row(
        title="five layers of samples, by the first",
        kind="hessian",
        function=dx.function(
            "five",
            [S, Z, *WEIGHTS[:5]],
            dx.sum((deep_rows(dx, S, WEIGHTS[:5]) - Z) ** 2),
            wrt=WEIGHTS[:1],
        ),
        program=lambda library, S, Z, *weights: library.sum(
            (deep_rows(library, S, weights) - Z) ** 2
        ),
        closed=five_hessian,
        sizes=tuple({"N": N, "n": n} for N, n in ((8, 8), (32, 20), (100, 30))),
        flops=lambda N, n: 16 * N * n**3 + N * n * n * n * (n + 1) / 2,
        draw=partial(weights, count=5),
    ),
    Row(
        title="attention",
        kind="vjp",
        function=dx.function("attention", [Q, K, V], ATTENTION),
        program=attention,
        closed=attention_vjp,
        sizes=tuple({"n": n, "d": d} for n, d in ((16, 16), (64, 32), (128, 64), (256, 64))),
        flops=lambda n, d: n * n * (12 * d + TRANSCENDENTAL),
        dtypes=("float64", "float32"),
    ),
    Row(
        title="attention, batched",
        kind="vjp",
        function=dx.function("attentions", [Q, K, V], ATTENTION, batch=[Q, K, V]),
        program=attention,
        closed=attention_vjp,
        sizes=tuple({"batch": batch, "n": 64, "d": 32} for batch in (1, 8, 32, 64)),
        flops=lambda batch, n, d: batch * n * n * (12 * d + TRANSCENDENTAL),
    ),
]
