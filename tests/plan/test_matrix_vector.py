"""Steps of loops over time multiply matrices and vectors by calls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import kernel_plan
from derivatrix.templates.support.cpu.sums import add_weighted_rows, multiply_rows
from tests.plain import check_plain

T, n, m = dx.dims("T n m")
W, U = dx.matrix("W", n, m), dx.matrix("U", m, n)
h0, X = dx.vector("h0", n), dx.matrix("X", T, n)


STEPS: dict[str, Callable[[dx.Array, dx.Array], dx.Array]] = {
    "weighted rows: an array": lambda h, x: dx.tanh(U.T @ (W.T @ h)) + x,
    "weighted rows: a formula": lambda h, x: (h * x) @ W @ U,
    "weighted rows: a negative sum": lambda h, x: x - (dx.exp(-h * h) @ W) @ U,
    "rows: an array": lambda h, x: dx.tanh(W @ (U @ h)) + x,
    "rows: a formula": lambda h, x: W @ (U @ (h * x)),
    "rows: a negative sum": lambda h, x: x - W @ (U @ dx.exp(-h * h)),
}


@pytest.mark.parametrize("case", STEPS)
@pytest.mark.parametrize("size", (1, 5))
def test_products_in_steps(case: str, size: int) -> None:
    _, states = dx.scan(lambda h, x: (STEPS[case](h, x), h), h0, X)
    function = dx.function("recurrent", [W, U, h0, X], states)
    plans = {}
    for kind in ("value", "vjp"):
        check_plain(function, kind, {"T": 3, "n": size, "m": 6})
        plans[kind] = str(kernel_plan(function.derivatives, kind).whole)
    calls = "add_weighted_rows(", "multiply_rows("
    # the adjoint step has the other products
    for kind, call in zip(
        plans, calls if case.startswith("weighted") else calls[::-1], strict=True
    ):
        assert plans[kind].count(call) >= 2


@pytest.mark.parametrize("rows", (0, 1, 4, 7))
@pytest.mark.parametrize("dtype", (np.float64, np.float32))
def test_products(rows: int, dtype: type) -> None:
    random = np.random.default_rng(rows)
    weights, target = random.normal(size=rows).astype(dtype), random.normal(size=5).astype(dtype)
    matrix = random.normal(size=(rows, 5)).astype(dtype)
    tolerance = 1e-5 if dtype == np.float32 else 1e-13
    expected = target + weights @ matrix
    add_weighted_rows(weights, matrix, target)
    np.testing.assert_allclose(target, expected, rtol=tolerance)
    multiply_rows(matrix, target, weights)
    np.testing.assert_allclose(weights, matrix @ target, rtol=tolerance, atol=tolerance)
