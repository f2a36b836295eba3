"""Lengths whose squares are beyond the range of numbers: homogeneous functions of scaled inputs."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import scipy

import derivatrix as dx

m, n = dx.dims("m n")
x, y, w = dx.vector("x", n), dx.vector("y", n), dx.vector("w", 3)
X, a, b = dx.matrix("X", m, n), dx.scalar("a"), dx.scalar("b")
CASES = {
    "norm": ([x], dx.norm(x), 1),
    "Frobenius norm": ([X], dx.norm(X), 1),
    "of columns": ([X], dx.norm(X, axis=0), 1),
    "sum of norms": ([X], dx.sum(dx.norm(X, axis=1)), 1),
    "kept axis": ([X], dx.norm(X, axis=1, keepdims=True), 1),
    "deviation": ([x], dx.std(x), 1),
    "deviations": ([X], dx.std(X, axis=1), 1),
    "hypot": ([a, b], dx.hypot(a, b), 1),
    "hypot of arrays": ([x, y], dx.hypot(x, y), 1),
    "in space": ([w], dx.norm(w), 1),
    "distance": ([x, y], dx.norm(x - y), 1),
    "of all differences": ([X], dx.sum(dx.norm(X[:, None, :] - X[None, :, :], axis=2)), 1),
    "two sums": ([x, y], dx.sqrt(x @ x + y @ y), 1),
    "sum and number": ([x, a], dx.sqrt(x @ x + a**2), 1),
    "mean square": ([X], dx.sqrt(dx.mean(X**2, axis=1)), 1),
    "unit vector": ([x], x / dx.norm(x), 0),
}
RANDOM = np.random.default_rng(3)
SHAPES = {"x": (5,), "y": (5,), "w": (3,), "X": (4, 5), "a": (), "b": ()}
VALUES = {name: np.asarray(RANDOM.normal(size=shape)) for name, shape in SHAPES.items()}
SCALES = [(np.float64, 2.0**k) for k in (-900, -560, 560, 900)]
SCALES += [(np.float32, 2.0**k) for k in (-100, -70, 70, 100)]


@cache
def declared(name: str) -> dx.Function:
    inputs, expression, _ = CASES[name]
    return dx.function("f", inputs, expression)


def checked(results: dict[float, list[np.ndarray]], degree: int, tolerance: float) -> None:
    plain = results.pop(1.0)
    for scale, scaled in results.items():
        for one, other in zip(plain, scaled, strict=True):
            expected = np.float64(one) * scale**degree
            allowed = tolerance * np.abs(expected).max()
            np.testing.assert_allclose(np.float64(other), expected, rtol=0, atol=allowed)


def arrays(name: str, real: type, scale: float) -> dict[str, np.ndarray]:
    return {leaf.name: real(scale * VALUES[leaf.name]) for leaf in declared(name).inputs}


def flat(results: object) -> list[np.ndarray]:
    if isinstance(results, tuple):
        return [array for part in results for array in flat(part)]
    return [np.asarray(results)]


@pytest.mark.parametrize("real", [np.float64, np.float32])
@pytest.mark.parametrize("name", CASES)
def test_kernels(name: str, real: type) -> None:
    module, degree = dx.compile(declared(name)), CASES[name][2]
    scales = [1.0, *(scale for kind, scale in SCALES if kind is real)]
    for kind, order in (("value", 0), ("jacobian", 1)):
        results = {
            scale: flat(getattr(module, kind)(**arrays(name, real, scale))) for scale in scales
        }
        checked(results, degree - order, 1e-12 if real is np.float64 else 1e-5)


@pytest.mark.parametrize("real", [np.float64, np.float32])
@pytest.mark.parametrize("name", [name for name in CASES if name != "unit vector"])
def test_texts(name: str, real: type) -> None:
    function, degree = declared(name), CASES[name][2]
    scales = [1.0, *(scale for kind, scale in SCALES if kind is real)]
    for kind, order in (("value", 0), ("jacobian", 1)):
        results = {}
        for scale in scales:
            scope = {"np": np, "scipy": scipy, **arrays(name, real, scale)}
            keys = function.derivatives.results(kind)
            texts = [function.formula(kind, wrt=key or None, style="numpy") for key in keys]
            results[scale] = [np.asarray(eval(text, scope)) for text in texts]
        checked(results, degree - order, 1e-12 if real is np.float64 else 1e-5)


def test_numbers_that_are_none() -> None:
    """Infinite entries and nan are no reason to scale; the subgradient at 0 is 0."""
    module = dx.compile(declared("norm"))
    for entry in (np.inf, np.nan):
        np.testing.assert_equal(module.value(np.array([entry, 1.0])), entry)
    np.testing.assert_array_equal(module.jacobian(np.zeros(3)), np.zeros(3))


def test_inputs_may_be_called_as_helpers_are() -> None:
    scaled, unscaled = dx.vector("scaled", n), dx.vector("unscaled", n)
    function = dx.function("f", [scaled, unscaled], dx.norm(scaled) / dx.norm(unscaled))
    point = np.array([3e200, 4e200])
    np.testing.assert_allclose(dx.compile(function).value(point, 2 * point), 0.5)
