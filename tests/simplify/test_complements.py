"""Differences from 1 keep their digits where the function is near 1."""

import numpy as np
import pytest
import sympy

import derivatrix as dx
from derivatrix.compiler.simplify.complements import with_complements

n = dx.dims("n")
x = dx.vector("x", n)
t = sympy.Symbol("t", real=True)


@pytest.mark.parametrize(
    ("expression", "value", "derivative"),
    [
        (1 - dx.exp(x), -1e-20, -1.0),
        (dx.log(1 - dx.exp(-x)), np.log(1e-20), 1e20),
        (dx.sqrt(1 - dx.exp(-(x**2))), 1e-20, 1.0),
        (3 - 3 * dx.cos(x) ** 2, 3e-40, 6e-20),
        (dx.sqrt(dx.cosh(x) ** 2 - 1), 1e-20, 1.0),
        (dx.sin(x) / dx.sqrt(1 - dx.cos(x) ** 2), 1.0, 0.0),
    ],
)
def test_tiny_arguments(expression, value, derivative):
    module = dx.compile(dx.function("tiny", [x], dx.sum(expression)))
    point = np.array([1e-20])
    np.testing.assert_allclose(module.value(point), value, rtol=1e-14)
    np.testing.assert_allclose(module.gradient(point), [derivative], rtol=1e-14)


@pytest.mark.parametrize(
    "expression",
    [
        1 - sympy.exp(2 * t),
        2 * sympy.cos(t) ** 2 - 2 + t,
        1 - sympy.sin(t) ** 2,
        sympy.cosh(t) ** 2 - 1,
        1 / (4 - 4 * sympy.exp(t)) + t,
    ],
)
def test_complements_are_equal(expression):
    changed = with_complements(expression)
    assert changed != expression
    for number in (-0.7, 0.3, 1.9):
        difference = (changed - expression).subs(t, number).evalf()
        assert abs(difference) < 1e-14


@pytest.mark.parametrize(
    "expression", [1 + sympy.exp(t), 2 - sympy.exp(t), 1 - sympy.cos(t), 1 - sympy.tanh(t) ** 2]
)
def test_other_sums_stay(expression):
    assert with_complements(expression) == expression
