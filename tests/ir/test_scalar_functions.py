"""Functions that SymPy lacks have the values of their NumPy texts at numbers, too."""

import numpy as np
import pytest
import scipy
import scipy.special
import sympy

import derivatrix as dx
from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import slot
from derivatrix.compiler.ir.scalar_functions import ScalarFunction

CLASSES = [
    kind
    for kind in vars(scalar_functions).values()
    if isinstance(kind, type) and issubclass(kind, ScalarFunction) and kind is not ScalarFunction
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_at_numbers(kind: type[ScalarFunction]) -> None:
    count = max(kind.nargs)
    for number in (sympy.Rational(1, 3), sympy.Integer(2), sympy.Float(0.7)):
        numbers = [number + position for position in range(count)]
        slots = [slot(position) for position in range(count)]
        if kind is scalar_functions.spherical:
            numbers[0] = slots[0] = sympy.Integer(2)
        values = [np.float64(float(value)) for value in numbers]
        expected = scalar_functions.evaluate(kind(*slots), values)
        assert float(kind(*numbers)) == pytest.approx(float(expected), rel=1e-14)


@pytest.mark.parametrize("name", ["entr", "normcdf", "relu", "sinc", "softplus"])
def test_constant_parts_of_functions(name: str) -> None:
    x = dx.vector("x", 2)
    function = dx.function("f", [x], getattr(dx, name)(0.3) * x)
    (node,) = function.derivatives.kernel("value")[1].values()
    values = {"x": np.array([1.0, -2.0])}
    expected = eval(function.declarations[""], {"np": np, "scipy": scipy, **values})
    np.testing.assert_allclose(evaluate(node, values, {}), expected)


def test_slope_where_the_logarithm_of_an_argument_is_none() -> None:
    x, y = slot(0), slot(1)
    slope = scalar_functions.derivative(scalar_functions.xlogy(x, sympy.exp(y)), y)
    assert float(scalar_functions.evaluate(slope, [np.float64(3.0), np.float64(0.5)])) == 3


def test_texts_of_functions_without_a_slope() -> None:
    """The slope of an infinite branch is nan. NumPy's text shows it; SymPy cannot order it."""
    d, x = dx.vector("d", 2), dx.vector("x", 2)
    text = dx.function("f", [d, x], dx.huber(d, x) * abs(x)).formula("jacobian", "d", "numpy")
    jacobian = eval(text, {"np": np, "d": np.array([-1.0, 1.0]), "x": np.array([2.0, 3.0])})
    np.testing.assert_array_equal(np.diagonal(jacobian), [np.nan, 6.0])


@pytest.mark.filterwarnings("error")
def test_numbers_of_small_types() -> None:
    for value in (np.float16(0.5), np.float16(-65504), np.int8(-128)):
        assert scalar_functions.number(value) == sympy.Rational(value.item())
