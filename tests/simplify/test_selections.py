"""Derivatives of `where` where the branch that is not taken has none, compared with those at points
where it has some."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

import derivatrix as dx
from derivatrix.compiler.differentiate.derivatives import Derivatives
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.interpret import evaluate

m, n = dx.dims("m n")
x, y, P = dx.vector("x", n), dx.vector("y", n), dx.matrix("P", n, 2)
X, w, keep = dx.matrix("X", n, m), dx.vector("w", m), dx.matrix("keep", n, n)
distances = dx.sqrt(dx.sum((P[:, None, :] - P[None, :, :]) ** 2, -1))
positive = np.array([0.0, -1.0, 2.0, 0.5])
zeros = np.array([0.0, 0.0, 2.0, 0.5])
points = np.array([[0.0, 1.0], [1.0, 0.5], [0.0, 1.0], [2.0, 2.0]])
rows = np.array([[0.0, 0, 0], [1, 2, 3], [1, 0, 2], [4, 1, 2]])
CASES = {
    "a logarithm": (dx.sum(dx.where(x > 0, dx.log(x), 0)), {"x": positive}),
    "a root": (dx.sum(dx.where(x > 0.1, dx.sqrt(x), x)), {"x": positive}),
    "an array": (dx.where(x > 0, x**-0.5, 0), {"x": positive}),
    "several branches": (
        dx.sum(dx.where(x > 1, dx.log(x - 1), dx.where(x > 0.1, 1 / x, 0))),
        {"x": positive},
    ),
    "functions of it": (dx.sum(dx.exp(dx.where(x > 0, 1 / x, 0)) ** 2), {"x": positive}),
    "a mask": (dx.sum(dx.where(y > 1, 1 / x, 0) * y), {"x": zeros, "y": np.array([0, 1.0, 2, 3])}),
    "rows": (
        dx.sum(dx.where(y > 0, dx.sum(1 / X, 1), 0) ** 2),
        {"X": rows, "y": np.array([0, 1.0, 0, 2])},
    ),
    "a product of matrices": (
        dx.sum(dx.where(x > 0, dx.log(x) * (X @ w), 0)),
        {"X": rows, "x": positive, "w": np.array([1.0, 2, -1])},
    ),
    "pairs": (
        dx.sum(dx.where((distances > 0.1) & (distances < 2), distances**-12 - 1 / distances**6, 0)),
        {"P": points},
    ),
    "pairs by a matrix": (
        dx.sum(dx.where(keep > 0, dx.exp(-distances) / distances, 0)),
        {"P": points, "keep": np.array([[0.0, 1, 0, 1], [1, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 0]])},
    ),
    "a rectified root": (dx.sum(dx.sqrt(dx.relu(x))), {"x": positive - 0.1}),
    "a root of max": (dx.sum(dx.sqrt(dx.maximum(x, 0)) * x), {"x": positive - 0.1}),
    "a power of max": (dx.sum(dx.maximum(x, 0) ** 0.3 + x), {"x": positive - 0.1}),
    "a cut root": (dx.sum(dx.clip(dx.sqrt(x), 0.5, 2)), {"x": np.array([0, 0.3, 1.0, 9])}),
    "max of a logarithm": (dx.sum(dx.maximum(dx.log(x), -3)), {"x": np.array([0, 0.3, 1.0])}),
    "the largest logarithm": (
        dx.max(dx.log(x)) ** 2 - dx.min(-dx.sqrt(x)),
        {"x": np.array([0.0, 2, 3])},
    ),
    "the largest of rows": (dx.sum(dx.max(X**0.3, axis=1) ** 2), {"X": rows[1:]}),
    "powers of absolute values": (
        dx.sum(dx.where(y > 0, dx.abs(x) ** y, x)),
        {"x": zeros - 0.5 * (zeros == 2), "y": np.array([1.0, 2, 3, -1])},
    ),
    "min of a power": (
        dx.sum(dx.minimum(dx.abs(x) ** y, 0.5)),
        {"x": np.array([0.0, 0, 3, 4]), "y": np.array([0.0, 0, 1, 2])},
    ),
    "squares of powers": (
        dx.sum((dx.abs(x) ** y) ** 2) + dx.sum((x**3) ** (y - 1)),
        {"x": zeros, "y": np.array([1.0, 2, 3, 0])},
    ),
    "roots and absolute values": (
        dx.sum(dx.minimum(1, dx.sqrt(x)) * dx.abs(x)),
        {"x": np.array([0.1, 0.3, 1.5, 9])},
    ),
    "powers of a number": (dx.sum(x * 2**x) + dx.sum(x * np.pi ** (x - 1)), {"x": positive}),
    "powers": (dx.sum(x[:, None] ** y), {"x": zeros, "y": np.array([0.0, 1, 2, 3])}),
    "min of a quotient": (
        dx.sum(dx.minimum(dx.sqrt(w @ w / (x @ x)), 2) * x),
        {"x": np.zeros(3), "w": np.ones(2)},
    ),
}


def function_of(name: str) -> Function:
    expression, values = CASES[name]
    by = [key for key in values if key not in ("y", "keep")]
    inputs = [leaf for leaf in (x, y, P, X, w, keep) if leaf.name in values]
    return dx.function("f", inputs, expression, wrt=by)


def arguments(function: Function, name: str, kind: str, real: type) -> dict[str, np.ndarray]:
    values = {leaf.name: CASES[name][1][leaf.name].astype(real) for leaf in function.inputs}
    random = np.random.default_rng(1)
    for leaf in function.derivatives.arguments(kind)[len(function.inputs) :]:
        shape = [values["x"].shape[0]] if leaf.name == "cotangent" and leaf.shape else ()
        own = values.get(leaf.name.removeprefix("tangent_"), values[function.wrt[0]])
        shape = own.shape if leaf.role == "tangent" else shape
        values[leaf.name] = np.asarray(random.normal(size=shape), real)
    return values


def texts(function: Function, kind: str, values: dict[str, np.ndarray]) -> list[np.ndarray]:
    scope = {"np": np, "scipy": scipy, **values}
    with np.errstate(all="ignore"):
        return [
            np.asarray(eval(function.formula(kind, wrt=key or None, style="numpy"), dict(scope)))
            for key in function.derivatives.results(kind)
        ]


def differences(function: Function, name: str) -> list[np.ndarray]:
    """Central differences of the value by the inputs, entry by entry; 0 where they jump."""
    values, step, actual = arguments(function, name, "value", float), 1e-6, []
    for key in function.wrt:
        result = np.zeros(values[key].shape)
        for place in np.ndindex(result.shape):
            sides = []
            for sign in (1, -1):
                moved = values[key].copy()
                moved[place] += sign * step
                sides.append(texts(function, "value", {**values, key: moved})[0])
            slope = (sides[0] - sides[1]) / (2 * step)
            result[place] = slope if abs(slope) < 1e4 else 0
        actual.append(result)
    return actual


@pytest.mark.parametrize("name", CASES)
def test_all_derivatives_select(name: str) -> None:
    function = function_of(name)
    for kind in {*function.derivatives.kinds} - {"value_and_gradient"}:
        values = arguments(function, name, kind, float)
        for result in texts(function, kind, values):
            assert np.isfinite(result).all(), kind
    if "gradient" in function.derivatives.kinds:
        values = arguments(function, name, "gradient", float)
        actual = texts(function, "gradient", values)
        for a, b in zip(actual, differences(function, name), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("real", [np.float64, np.float32])
@pytest.mark.parametrize("name", ["a logarithm", "pairs", "rows"])
def test_kernels_select(name: str, real: type) -> None:
    function = function_of(name)
    module = dx.compile(function)
    for kind in ("vjp", "jvp", "gradient", "hessian", "hvp"):
        values = arguments(function, name, kind, real)
        actual = getattr(module, kind)(*values.values())
        np.testing.assert_allclose(actual, texts(function, kind, values)[0], rtol=1e-3, atol=1e-4)
    operator = module.hessian_operator(*arguments(function, name, "hessian", real).values())
    assert np.isfinite(operator.todense()).all()


def test_values_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    """A declared product stays one, and without the pass derivatives are nan."""
    function = dx.function("f", [x], dx.sum(dx.where(x > 0, 1, 0) * dx.log(x)))
    (value,) = texts(function, "value", {"x": positive})
    assert np.isnan(value)
    monkeypatch.setattr(Derivatives, "with_selections", lambda self, nodes: nodes)
    function = function_of("a root")
    (gradient,) = texts(function, "gradient", arguments(function, "a root", "gradient", float))
    assert np.isnan(gradient).any()


@pytest.mark.parametrize("checkpoint", [None, 2])
def test_steps_of_loops(checkpoint: int | None) -> None:
    """The carry of the first two steps is 0, where sqrt has no slope."""
    W, start = dx.matrix("W", "T", n), dx.vector("start", n)
    last, lengths = dx.scan(
        lambda h, z: (dx.where(h > 0, dx.sqrt(h), 2 * h) + z, dx.sum(h**2)),
        start,
        W,
        checkpoint=checkpoint,
    )
    function = dx.function("f", [W, start], dx.sum(last) + dx.sum(lengths))
    values = {"W": np.array([[0.0], [4], [0]]), "start": np.zeros(1)}
    results = function.derivatives.kernel("gradient")[1]
    with np.errstate(all="ignore"):
        gradients = {
            key: evaluate(node, values, {"T": 3, "n": 1}) for (key,), node in results.items()
        }
    # the last carry is sqrt(4), and 4 is the only carry that is squared
    np.testing.assert_allclose(gradients["W"].ravel(), [2 * 8.25, 8.25, 1])
    np.testing.assert_allclose(gradients["start"], [4 * 8.25])
