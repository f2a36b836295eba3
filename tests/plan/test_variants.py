"""Kernels that choose an order of multiplication when they are called."""

from __future__ import annotations

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.differentiate.derivatives import Derivatives
from derivatrix.compiler.driver.pipeline import generate, kernel_plan
from derivatrix.compiler.ir.interpret import evaluate_all
from tests.plain import run_plain

p, q, r, s = dx.dims("p q r s")
A, B, C = dx.matrix("A", p, q), dx.matrix("B", q, r), dx.matrix("C", r, s)
D = dx.matrix("D", p, s)
U, V = dx.matrix("U", p, r), dx.matrix("V", q, r)
FUNCTIONS = (
    dx.function("chain", [A, B, C], A @ B @ C),
    dx.function("residual", [A, B, C, D], dx.sum((A @ B @ C - D) ** 2), wrt=[B]),
    dx.function("outer", [U, V, B], U @ V.T @ B),
    dx.function("normal", [A], dx.trace(A @ A.T @ A @ A.T)),
)
SKEWED = (
    {"p": 2, "q": 9, "r": 2, "s": 9},
    {"p": 9, "q": 2, "r": 9, "s": 2},
    {"p": 1, "q": 1, "r": 12, "s": 12},
    {"p": 12, "q": 12, "r": 1, "s": 1},
    {"p": 5, "q": 5, "r": 5, "s": 5},
)


def arrays(derivatives: Derivatives, kind: str, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        leaf.name: random.normal(size=[sizes[str(size)] for size in leaf.shape])
        for leaf in derivatives.arguments(kind)
    }


@pytest.mark.parametrize("sizes", SKEWED, ids=lambda sizes: "-".join(map(str, sizes.values())))
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_every_order_computes_the_same(function: dx.Function, sizes: dict[str, int]) -> None:
    derivatives = Derivatives(function)
    for kind in derivatives.kinds:
        kernel = kernel_plan(derivatives, kind)
        values = arrays(derivatives, kind, sizes)
        nodes = list(derivatives.kernel(kind)[1].values())
        expected = evaluate_all(nodes, values, sizes)
        for one in (kernel, *kernel.variants):
            outputs = [np.full(array.shape, np.nan) for array in expected]
            run_plain(one, values, outputs)
            for output, array in zip(outputs, expected, strict=True):
                np.testing.assert_allclose(output, array, rtol=1e-9, atol=1e-9)


def test_the_cheapest_is_called() -> None:
    derivatives = Derivatives(FUNCTIONS[0])
    kernel = kernel_plan(derivatives, "value")
    result = set()
    for sizes in SKEWED[:2]:
        values = arrays(derivatives, "value", sizes)
        out = np.empty((sizes["p"], sizes["s"]))
        result.add(run_plain(kernel, values, [out])[-1])
    assert result == {"value_kernel_0", "value_kernel_1"}


def test_usual_functions_have_one_order() -> None:
    n = dx.dims("n")
    X, w, x, W = dx.matrix("X", n, n), dx.vector("w", p), dx.vector("x", q), dx.matrix("W", p, q)
    for function in (
        dx.function("square", [X], X @ X @ X),
        dx.function("layer", [w, W, x], w @ dx.tanh(W @ x)),
        dx.function("product", [A, B], A @ B),
    ):
        assert "_kernel_1" not in generate(function).text


def test_a_gradient_is_the_jacobian_with_all_its_orders() -> None:
    generated = generate(FUNCTIONS[1])
    assert "'gradient_kernel': _jacobian_kernel,\n" in generated.data
    assert "def gradient_kernel" not in generated.text


def test_modules() -> None:
    report = dx.verify(dx.compile(FUNCTIONS[0]))
    assert report.passed, str(report)
