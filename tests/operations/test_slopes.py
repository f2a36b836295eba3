"""Derivatives of functions with kinks and jumps, of whatever they are functions of."""

import numpy as np
import pytest
import scipy.special
import sympy

import derivatrix as dx
from derivatrix.compiler.ir import scalar_functions as scalars
from derivatrix.compiler.ir.nodes import slot

x, p = slot(0), slot(1)
INNER = [
    sympy.log(p) / sympy.log(2),
    sympy.sqrt(p),
    p ** sympy.Rational(3, 10),
    x**p,
    sympy.asin(p),
    sympy.atanh(p),
    sympy.acosh(1 + p),
    sympy.gamma(p),
    sympy.loggamma(p),
    sympy.polygamma(0, p),
    sympy.erfinv(p),
    sympy.besselj(0, p),
    sympy.Max(x - 2, sympy.log(p)),
    sympy.Abs(sympy.Abs(sympy.log(p)) - x),
    sympy.Piecewise((0, sympy.Eq(x, 0)), (x * sympy.log(p), True)),
]
OUTER = {
    "sign": sympy.sign,
    "floor": sympy.floor,
    "ceil": sympy.ceiling,
    "step": scalars.step,
    "heaviside": sympy.Heaviside,
    "above": lambda t: sympy.Piecewise((1, t > 0), (0, True)),
    "abs": sympy.Abs,
    "relu": scalars.relu,
    "maximum": lambda t: sympy.Max(t, x**2),
    "remainder": lambda t: sympy.Mod(t, x),
    "where": lambda t: sympy.Piecewise((t, t > x), (-t, True)),
    "cbrt": scalars.FUNCTIONS["cbrt"],
}
FLAT = ("sign", "floor", "ceil", "step", "heaviside", "above")
POINTS = [(1.3, 0.62), (0.7, 0.41)]
STEP = 1e-6


@pytest.mark.parametrize("name", OUTER)
@pytest.mark.parametrize("inner", INNER, ids=str)
def test_slopes(name: str, inner: sympy.Expr) -> None:
    for expression in (OUTER[name](inner), OUTER[name](x - inner), x * OUTER[name](x * inner)):
        slope = scalars.derivative(expression, p)
        if name in FLAT:
            assert slope == 0
            continue
        for first, second in POINTS:
            ends = [(np.float64(first), np.float64(second + step)) for step in (STEP, -STEP)]
            above, below = (float(scalars.evaluate(expression, end)) for end in ends)
            value = float(scalars.evaluate(slope, (np.float64(first), np.float64(second))))
            assert value == pytest.approx((above - below) / (2 * STEP), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("outer", [dx.sign, dx.floor, dx.ceil, lambda t: t > 0])
def test_jumps_of_logarithms(outer) -> None:
    """Their derivative is 0, by every input and of every kind."""
    n = dx.dims("n")
    points, weights = dx.vector("x", n), dx.vector("p", n, "positive")
    function = dx.function("f", [points, weights], dx.sum(outer(points - dx.log2(weights))))
    for name in ("x", "p"):
        assert function.formula("gradient", wrt=name) == "0"
        assert function.formula("hessian", wrt=name) == "0"


HARD = {
    ("xlogy", 0, 0.0, 2.0): np.log(2),
    ("xlogy", 1, 0.0, 0.0): 0.0,
    ("xlogy", 1, 3.0, 2.0): 1.5,
    ("xlog1py", 0, 0.0, 2.0): np.log(3),
    ("xlog1py", 1, 0.0, -1.0): 0.0,
    ("entr", 0, 0.0): np.inf,
    ("entr", 0, -1.0): np.nan,
    ("entr", 0, 2.0): -1 - np.log(2),
    ("rel_entr", 0, 0.0, 2.0): -np.inf,
    ("rel_entr", 1, 0.0, 2.0): 0.0,
    ("rel_entr", 1, -1.0, -2.0): np.nan,
    ("huber", 0, -1.0, 2.0): np.nan,
    ("huber", 1, 0.5, -2.0): -0.5,
    ("loggamma", 0, -0.5): np.nan,
}
"""A function, the argument by which it is differentiated, and the point: the derivative there."""


@pytest.mark.parametrize("case", HARD, ids=str)
def test_the_slope_at_the_end_of_a_domain(case):
    name, position, *point = case
    slots = [x, p][: len(point)]
    slope = scalars.derivative(scalars.FUNCTIONS[name](*slots), slots[position])
    with np.errstate(all="ignore"):
        value = scalars.evaluate(slope, [np.array(number) for number in point])
    np.testing.assert_allclose(value, HARD[case])


@pytest.mark.parametrize(("name", "slope"), [("xlogy", 1 / 2), ("xlog1py", 1 / 3)])
def test_mixed_second_derivatives_where_the_factor_is_zero(name: str, slope: float) -> None:
    """They do not depend on the order of differentiation."""
    expression = scalars.FUNCTIONS[name](x, p)
    for first, second in ((x, p), (p, x)):
        mixed = scalars.derivative(scalars.derivative(expression, first), second)
        assert scalars.evaluate(mixed, [np.array(0.0), np.array(2.0)]) == pytest.approx(slope)


@pytest.mark.parametrize("name", ["xlogy", "xlog1py", "entr", "rel_entr"])
def test_values_at_the_end_of_a_domain(name: str) -> None:
    """Kernels have SciPy's values, with the sign of zeros, but for nan."""
    exact = getattr(scipy.special, name)
    numbers = np.array([0.0, -0.0, 1.0, -1.0, -0.5, 3.0, np.inf, -np.inf])
    points = [array.ravel() for array in np.meshgrid(*exact.nin * [numbers])]
    inputs = [dx.vector(letter, 8**exact.nin) for letter in "xy"[: exact.nin]]
    module = dx.compile(dx.function("f", inputs, exact(*inputs), kinds=["value"]))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(module.value(*points), exact(*points), rtol=1e-15)
