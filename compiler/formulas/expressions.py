"""Entrywise trees of SymPy's scalar expressions."""

from __future__ import annotations

from collections.abc import Mapping

import sympy
from sympy.core.relational import Relational
from sympy.functions.elementary.piecewise import ExprCondPair

from derivatrix.compiler.formulas import algebra, entrywise
from derivatrix.compiler.formulas.tree import Number, Size, Tree
from derivatrix.compiler.ir import scalar_functions
from derivatrix.runtime.errors import UnsupportedError

ONE = sympy.S.One
NO_SYMBOLS: Mapping[sympy.Symbol, Tree] = {}


def convert(expression: sympy.Basic, symbols: Mapping[sympy.Symbol, Tree] = NO_SYMBOLS) -> Tree:
    """Build the tree of an expression. `symbols`: the arrays, of one rank, that its symbols stand
    for. Other symbols are dimensions.

    Raises UnsupportedError for what is neither arithmetic, a function nor a condition.
    """

    def parts(arguments: tuple[sympy.Basic, ...]) -> list[Tree]:
        return [convert(argument, symbols) for argument in arguments]

    match expression:
        case sympy.Symbol():
            return symbols.get(expression) or Size(expression.name)
        case sympy.Number() | sympy.NumberSymbol():
            return Number(expression)
        case sympy.Add():
            indicator, others = _split_indicator(expression.args)
            terms = [
                algebra.scale(scale, [], entrywise.positive(convert(t, symbols)))
                for scale, t in indicator
            ]
            return algebra.add([*terms, *parts(others)])
        case sympy.Mul():
            root, others = _split_root(expression.args)
            factors = [algebra.raised(convert(base), exponent) for base, exponent in root]
            return algebra.hadamard([*factors, *parts(others)])
        case sympy.Pow():
            return algebra.raised(*parts(expression.args))
        case sympy.Piecewise():
            return _piecewise(expression.args, symbols)
        case Relational():
            return entrywise.relation(expression.rel_op, *parts(expression.args))
        case sympy.And() | sympy.Or() | sympy.Not():
            ordered = tuple(sorted(expression.args, key=sympy.default_sort_key))
            return entrywise.logic(type(expression).__name__.lower(), parts(ordered))
        case sympy.logic.boolalg.BooleanAtom():
            return Number(ONE if expression else sympy.S.Zero)
        case scalar_functions.step():
            return entrywise.relation(">", parts(expression.args)[0], Number(sympy.S.Zero))
        case sympy.Function() | sympy.Max() | sympy.Min():
            arguments = expression.args
            if not isinstance(expression, sympy.Function) or expression.is_commutative is None:
                arguments = tuple(sorted(arguments, key=sympy.default_sort_key))
            return entrywise.function(type(expression), parts(arguments))
    raise UnsupportedError(f"{expression} has no formula: {type(expression).__name__} is unknown")


Basics = tuple[sympy.Basic, ...]


def _split_indicator(terms: Basics) -> tuple[list[tuple[sympy.Expr, sympy.Expr]], Basics]:
    """Split c + c sign(t) = 2 c [t > 0] off a sum: returns 2 c and t, if any, and the other
    terms."""
    number = next((term for term in terms if term.is_number), sympy.S.Zero)
    for term in terms:
        scale, function = term.as_coeff_Mul()
        if isinstance(function, sympy.sign) and abs(scale) == abs(number):
            t = function.args[0] if scale == number else -function.args[0]
            return [(2 * number, t)], tuple(p for p in terms if p not in (term, number))
    return [], terms


def _split_root(factors: Basics) -> tuple[list[tuple[sympy.Expr, Number]], Basics]:
    """Join several square roots of numbers, √2 / (2 √π) = 1/√(2 π): returns base and exponent, if
    any, and the other factors."""
    numbers = [factor for factor in factors if factor.is_number]
    roots = [f for f in numbers if isinstance(f, sympy.Pow) and abs(f.exp) == sympy.S.Half]
    numerator, denominator = sympy.fraction(sympy.prod(numbers) ** 2)
    if len(roots) < 2 or (numerator * denominator).atoms(sympy.Pow):
        return [], factors
    others = tuple(factor for factor in factors if factor not in numbers)
    sign = sympy.sign(sympy.prod(numbers))
    root = (numerator / denominator, Number(sympy.S.Half))
    if numerator == 1:
        root = (denominator, Number(-sympy.S.Half))
    return [root], (sign, *others)


def _piecewise(pairs: tuple[ExprCondPair, ...], symbols: Mapping[sympy.Symbol, Tree]) -> Tree:
    """Nest choices; the value is nan, as NumPy's, where no condition holds."""
    (value, condition), *further_pairs = pairs
    yes = convert(value, symbols)
    if condition == sympy.true:
        return yes
    no = _piecewise(tuple(further_pairs), symbols) if further_pairs else Number(sympy.S.NaN)
    return entrywise.choice(convert(condition, symbols), yes, no)
