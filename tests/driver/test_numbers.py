"""Numbers that are no short binary fractions, or no machine's integers, in formulas and kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy

import derivatrix as dx

x, s = dx.vector("x", "n"), dx.scalar("s")
POINTS = {"x": np.array([0.5, 0.25]), "s": np.array(1.5)}


@pytest.mark.parametrize(
    "number",
    [3.7, 1 / 3, 1e20, -1e20, 2.0**63, 10**30, 1e-300, 1e300, sympy.Rational(1, 10**25)],
    ids=str,
)
def test_a_coefficient_of_any_size(number: Any) -> None:
    function = dx.function("scaled", [x], number * x)
    expected = float(number) * POINTS["x"]
    np.testing.assert_allclose(dx.compile(function).value(POINTS["x"]), expected, rtol=1e-15)
    text = function.formula("value", style="numpy")
    np.testing.assert_allclose(eval(text, {"np": np}, POINTS), expected, rtol=1e-15)


@pytest.mark.parametrize(
    "make, known, text",
    [
        (lambda: 3.7 * x / 3.7, lambda x, s: x, "x"),
        (lambda: (3.7 * s) * (s / 3.7), lambda x, s: s**2, "s²"),
        (lambda: x**0.3 * x**0.7, lambda x, s: x, "x"),
        (lambda: (x**0.3) ** (1 / 0.3), lambda x, s: x, "x"),
        (lambda: 3.7 * s * (1 - s), lambda x, s: 3.7 * s * (1 - s), "3.7 s (1 − s)"),
        (lambda: 0.1 * s**3 - 0.1 * s, lambda x, s: 0.1 * s**3 - 0.1 * s, None),
    ],
)
def test_numbers_that_cancel(
    make: Callable[[], Any], known: Callable[..., Any], text: str | None
) -> None:
    expression = make()
    inputs = [s] if expression.ndim == 0 else [x]
    function = dx.function("cancelling", inputs, expression)
    point = POINTS[inputs[0].name]
    np.testing.assert_allclose(dx.compile(function).value(point), known(**POINTS), rtol=1e-14)
    written = eval(function.formula("value", style="numpy"), {"np": np}, POINTS)
    np.testing.assert_allclose(written, known(**POINTS), rtol=1e-14)
    if text:
        assert function.formula("value") == text
