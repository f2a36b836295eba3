"""Expansions of scalar expressions at 0, compared with SymPy's."""

import pytest
import sympy

from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.expansions import LOGARITHM, NoExpansion, expansion

t = sympy.Symbol("t", positive=True)
a = sympy.Symbol("a", positive=True)

EXPRESSIONS = [
    sympy.sin(t) / t,
    (t * sympy.cos(t) - sympy.sin(t)) / t**3,
    1 / (t * (1 + t)),
    sympy.exp(-a * t) / t**2,
    sympy.sqrt(a + t),
    (1 - sympy.cos(a * t)) / sympy.sqrt(t**4 + t**6),
    sympy.tanh(a + t),
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_coefficients(expression: sympy.Expr) -> None:
    series = expansion(expression, t, 8)
    expected = sympy.series(expression, t, 0, 4).removeO().subs(a, 2)
    orders = range(series.start, 4)
    actual = sum(series.coefficient(order) * t**order for order in orders)
    assert sympy.simplify(actual.subs(a, 2) - expected) == 0
    assert series.coefficient(series.start - 1) == 0


def test_what_cancels_and_what_does_not() -> None:
    assert expansion((1 - sympy.cos(t)) / t**2, t, 6).cancels
    assert not expansion(sympy.sin(t) / t, t, 6).cancels


def test_logarithms_and_branches() -> None:
    assert expansion(t**2 * sympy.log(2 * t), t, 4).coefficient(2) == LOGARITHM + sympy.log(2)
    pieces = sympy.Piecewise((1, sympy.Eq(t, 0)), (sympy.Max(1 - t, t), t < 1), (0, True))
    assert expansion(pieces, t, 4).coefficients == (1, -1, 0, 0)
    assert expansion(scalar_functions.relu(t - 1) + 1, t, 4).coefficients == (1, 0, 0, 0)


@pytest.mark.parametrize(
    "expression", [sympy.exp(1 / t), sympy.sqrt(t), sympy.besselk(0, t), sympy.Max(a - 1, t)]
)
def test_what_has_no_expansion(expression: sympy.Expr) -> None:
    with pytest.raises(NoExpansion):
        expansion(expression, t, 6)
