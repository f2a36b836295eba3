"""log softmax and cross entropies of numbers that are far larger than their differences."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

import derivatrix as dx
from derivatrix.compiler.ir.nodes import topological
from derivatrix.compiler.operations.softmax import LOGSUMEXP

m, n = dx.dims("m n")
x, y, X, x3 = dx.vector("x", n), dx.vector("y", n), dx.matrix("X", m, n), dx.vector("x", 3)
CASES = {
    "log_softmax": dx.log_softmax(x),
    "a difference": x - dx.logsumexp(x),
    "weights": (x - dx.logsumexp(x)) @ y,
    "a sum": dx.sum(dx.log_softmax(X, axis=1)),
    "a mean over columns": dx.mean(dx.log_softmax(X, axis=0)),
    "cross entropy": dx.logsumexp(x) - x[1],
    "cross entropies": dx.sum(dx.logsumexp(X, axis=1)) - dx.sum(X[:, 0]),
    "scaled": dx.logsumexp(2 * x) - 2 * x[0],
    "a logarithm": dx.log(dx.softmax(x)),
    "of an entry": -dx.log(dx.softmax(x)[1]),
    "few entries": dx.log_softmax(x3),
}
RANDOM = np.random.default_rng(2)
VALUES = {
    "x": RANDOM.integers(-6, 6, 3) / 4,
    "y": np.array([0.5, 1, -2]),
    "X": RANDOM.integers(-6, 6, (4, 3)) / 4,
}


@pytest.mark.parametrize(("real", "offset"), [(np.float32, 1e4), (np.float64, 1e15)])
@pytest.mark.parametrize("name", CASES)
def test_offsets_change_nothing(name: str, real: type, offset: float) -> None:
    expression = CASES[name]
    leaves = [leaf for leaf in (x, y, X, x3) if leaf.node in topological([expression.node])]
    function = dx.function("f", leaves, expression, wrt=[leaves[0]])
    assert LOGSUMEXP not in {
        getattr(node, "operation", None)
        for node in topological(list(function.derivatives.results("value").values()))
    }
    for kind in {"value", "vjp", "gradient", "hessian"} & {*function.derivatives.kinds}:
        shape = (3,) if function.expression.shape else ()
        scope = {"np": np, "scipy": scipy, "cotangent": np.ones(shape, real)}
        plain = {key: value.astype(real) for key, value in VALUES.items()}
        moved = {**plain, "x": plain["x"] + real(offset), "X": plain["X"] + real(offset)}
        text = function.formula(kind, style="numpy")
        actual, expected = (eval(text, {**scope, **values}) for values in (moved, plain))
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5, err_msg=kind)


@pytest.mark.parametrize("name", ["log_softmax", "cross entropy", "few entries"])
def test_kernels(name: str) -> None:
    leaf = x3 if name == "few entries" else x
    module = dx.compile(dx.function("f", [leaf], CASES[name]))
    largest = np.array([1e308, 1e308, -1e308])
    expected = {"cross entropy": np.log(2)}.get(name, np.array([-np.log(2), -np.log(2), -np.inf]))
    np.testing.assert_allclose(module.value(largest), expected)
    single = (VALUES["x"] + 1e4).astype(np.float32)
    wide = module.value(VALUES["x"])
    np.testing.assert_allclose(module.value(single), wide, rtol=1e-5)
    np.testing.assert_allclose(module.jacobian(single), module.jacobian(VALUES["x"]), rtol=1e-5)


def test_columns() -> None:
    """Many short rows, side by side."""
    module = dx.compile(dx.function("f", [x], dx.log_softmax(x), batch=[x]))
    many = np.random.default_rng(0).normal(size=(100, 3))
    np.testing.assert_allclose(
        module.value(many + 2**40), module.value((many + 2**40) - 2**40), rtol=1e-9
    )
