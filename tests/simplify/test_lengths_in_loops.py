"""Lengths at zero within steps of loops: their derivatives are those of the loop written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import kernel_plan
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.interpret import evaluate
from tests.plain import run_plain

LENGTH = 3
W, X = dx.matrix("W", 2, 2), dx.matrix("X", LENGTH, 2)
start, radius = dx.vector("start", 2), dx.norm
WEIGHTS, SERIES = np.array([[0.3, 0.2], [-0.5, 0.7]]), np.array([[0.4, -0.3], [0, 0], [1.2, 0.1]])
ZEROS = {"W": np.zeros((2, 2)), "X": np.zeros((LENGTH, 2)), "start": np.zeros(2)}
ZERO_STARTS = {"W": WEIGHTS, "X": SERIES, "start": np.zeros(2)}

Step = Callable[[Any, Any], Any]
FINITE: dict[str, Step] = {
    "a scale": lambda h, x: dx.tanh(W @ h) + x / (1 + radius(h)),
    "a root": lambda h, x: W @ h + x * dx.sqrt(h @ h),
    "a product": lambda h, x: W @ h + h * radius(h) / (1 + h @ h) + x,
    "Matern 3/2": lambda h, x: W @ h + dx.exp(-radius(h)) * (1 + radius(h)) * x,
    "of the next carry": lambda h, x: dx.tanh(W @ h + x) / (1 + radius(W @ h + x)),
    "of a series and a parameter": lambda h, x: h * radius(x) + x * radius(W),
    "a guarded quotient": lambda h, x: (
        dx.where(radius(h) > 0, dx.sin(radius(h)) / radius(h), 1) * x
    ),
    "absolute values": lambda h, x: W @ h + dx.exp(-abs(h)) * (1 + abs(h)) * x,
    "a reciprocal in a loop": lambda h, x: (
        x * dx.scan(lambda g, w: (w / (1 + 1 / radius(g)), None), h, W)[0]
    ),
    "a loop": lambda h, x: dx.scan(lambda g, w: (g / (1 + radius(g)) + w, None), h, W)[0] + x,
}
SINGULAR: dict[str, tuple[Step, str]] = {
    "a logarithm": (lambda h, x: W @ h + x / (1 + dx.log(radius(h)) ** 2), "start"),
    "a quotient": (lambda h, x: W @ h + h / radius(h) + x, "start W X"),
    "a root": (lambda h, x: W @ h + x + dx.tanh(dx.sqrt(radius(h))), "start"),
    "two functions": (lambda h, x: h * radius(h) + x * dx.log1p(dx.sqrt(radius(h))), "start"),
    "of a series": (lambda h, x: W @ h + h * radius(x) + dx.tanh(dx.sqrt(radius(x))), "X"),
    "of a row of a parameter": (
        lambda h, x: dx.scan(lambda g, w: (g + dx.sqrt(radius(w)) * x, None), h, W)[0],
        "W",
    ),
    "of the carry of a loop": (
        lambda h, x: dx.scan(lambda g, w: (g + dx.sqrt(radius(g)) * w, None), h, W)[0] + x,
        "start",
    ),
}
"""Steps, and the inputs whose derivatives are infinite or nan where all inputs are zero."""


def looped(step: Step, checkpoint: int | None = None) -> Function:
    last, squares = dx.scan(
        lambda h, x: (step(h, x), dx.sum(step(h, x) ** 2)), start, X, checkpoint=checkpoint
    )
    return function_of(last, squares)


def written_out(step: Step) -> Function:
    carry, squares = start, dx.zeros()
    for time in range(LENGTH):
        carry = step(carry, X[time])
        squares = squares + dx.sum(carry**2)
    return function_of(carry, squares)


def function_of(last: Any, squares: Any) -> Function:
    return dx.function("f", [W, X, start], dx.sum(last) + dx.sum(squares) + dx.sum(W))


def evaluated(
    function: Function, kind: str, values: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    arguments, results = function.derivatives.kernel(kind)
    directions = {leaf.name: random.normal(size=(2, 2)) for leaf in arguments}
    directions["tangent_X"] = random.normal(size=(LENGTH, 2))
    directions["tangent_start"] = random.normal(size=2)
    with np.errstate(all="ignore"):
        return {name: evaluate(node, directions | values, {}) for (name,), node in results.items()}


@pytest.mark.parametrize("checkpoint", [None, 2])
@pytest.mark.parametrize("name", FINITE)
def test_gradients(name: str, checkpoint: int | None) -> None:
    loop, unrolled = looped(FINITE[name], checkpoint), written_out(FINITE[name])
    for values in (ZEROS, ZERO_STARTS):
        expected = evaluated(unrolled, "gradient", values)
        for key, gradient in evaluated(loop, "gradient", values).items():
            assert np.isfinite(gradient).all()
            np.testing.assert_allclose(gradient, expected[key], 1e-12, 1e-12, err_msg=key)


@pytest.mark.parametrize("checkpoint", [None, 2])
@pytest.mark.parametrize("name", ["a product", "Matern 3/2", "absolute values"])
def test_second_derivatives(name: str, checkpoint: int | None) -> None:
    expected = evaluated(written_out(FINITE[name]), "hvp", ZERO_STARTS)
    for key, product in evaluated(looped(FINITE[name], checkpoint), "hvp", ZERO_STARTS).items():
        np.testing.assert_allclose(product, expected[key], 1e-12, 1e-12, err_msg=key)


@pytest.mark.parametrize("checkpoint", [None, 2])
@pytest.mark.parametrize("name", SINGULAR)
def test_infinite_slopes_stay(name: str, checkpoint: int | None) -> None:
    step, inputs = SINGULAR[name]
    values = ZEROS if "W" in inputs else ZEROS | {"W": WEIGHTS}
    for function in (looped(step, checkpoint), written_out(step)):
        gradients = evaluated(function, "gradient", values)
        for key in inputs.split():
            assert not np.isfinite(gradients[key]).all(), key


@pytest.mark.parametrize("checkpoint", [None, 2])
def test_infinite_slopes_stay_in_second_derivatives(checkpoint: int | None) -> None:
    step, _ = SINGULAR["of a series"]
    product = evaluated(looped(step, checkpoint), "hvp", ZERO_STARTS)["X"]
    assert not np.isfinite(product[1]).any()


@pytest.mark.parametrize("checkpoint", [None, 2])
@pytest.mark.parametrize("is_linear", [True, False])
def test_lengths_of_next_carries(is_linear: bool, checkpoint: int | None) -> None:
    """Derivatives read the carry after the step, in the loop and outside of it."""

    def step(carry: Any, x: Any) -> Any:
        following = W @ carry[1] + x if is_linear else dx.sin(x)
        return (following, dx.tanh(dx.sqrt(radius(following))) + carry[1]), None

    (last, states), _ = dx.scan(step, (start, start), X, checkpoint=checkpoint)
    gradient = evaluated(function_of(last, states), "gradient", ZEROS | {"W": WEIGHTS})
    assert not np.isfinite(gradient["X"]).any()
    assert np.isfinite(gradient["start"]).all() != is_linear


def test_samples_and_series_that_they_share() -> None:
    """A length of the series has no axis of samples, its function in the derivative has."""
    last, _ = dx.scan(
        lambda h, x: (h + dx.tanh(dx.sqrt(radius(x)) + dx.sqrt(radius(h))), None), start, X
    )
    function = dx.function("f", [X, start], dx.sum(last), batch=[start])
    node = function.derivatives.kernel("gradient")[1]["X",]
    samples = np.array([[1, 2], [3, 4]])
    with np.errstate(all="ignore"):
        gradient = evaluate(node, {"X": SERIES, "start": samples}, {"batch": 2})
    np.testing.assert_array_equal(np.isfinite(gradient).all(axis=2), [[True, False, True]] * 2)


def test_values_stay_as_declared() -> None:
    last, _ = dx.scan(lambda h, x: (x / (1 + radius(h)), None), start, X)
    function = dx.function("f", [X, start], dx.grad(dx.sum(last), start))
    assert function.derivatives.kernel("value")[1] == function.derivatives.batched("value")


@pytest.mark.parametrize("checkpoint", [None, 2])
def test_kernels(checkpoint: int | None) -> None:
    function = looped(FINITE["a scale"], checkpoint)
    expected = evaluated(written_out(FINITE["a scale"]), "gradient", ZERO_STARTS)
    results = [np.full(array.shape, np.nan) for array in expected.values()]
    run_plain(kernel_plan(function.derivatives, "gradient"), ZERO_STARTS, results)
    for gradient, (key, other) in zip(results, expected.items(), strict=True):
        np.testing.assert_allclose(gradient, other, 1e-12, err_msg=key)
