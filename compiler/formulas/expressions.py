"""SymPy scalar expressions as trees, entry by entry."""

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
    """The tree of an expression; `symbols`: the arrays that its symbols stand for, of one
    rank. Other symbols are dimensions.

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
            found, left = _indicators(expression.args)
            terms = [
                algebra.scale(scale, [], entrywise.positive(convert(t, symbols)))
                for scale, t in found
            ]
            return algebra.add([*terms, *parts(left)])
        case sympy.Mul():
            roots, left = _root(expression.args)
            factors = [algebra.raised(convert(own), half) for own, half in roots]
            return algebra.hadamard([*factors, *parts(left)])
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


def _indicators(terms: Basics) -> tuple[list[tuple[sympy.Expr, sympy.Expr]], Basics]:
    """c + c sign(t) among the terms of a sum, as 2 c and t, and the other terms."""
    number = next((term for term in terms if term.is_number), sympy.S.Zero)
    for term in terms:
        scale, function = term.as_coeff_Mul()
        if isinstance(function, sympy.sign) and abs(scale) == abs(number):
            t = function.args[0] if scale == number else -function.args[0]
            return [(2 * number, t)], tuple(p for p in terms if p not in (term, number))
    return [], terms


def _root(factors: Basics) -> tuple[list[tuple[sympy.Expr, Number]], Basics]:
    """Square roots of numbers among factors as one, √2 / (2 √π) = 1/√(2 π), and the others."""
    numbers = [factor for factor in factors if factor.is_number]
    roots = [f for f in numbers if isinstance(f, sympy.Pow) and abs(f.exp) == sympy.S.Half]
    over, under = sympy.fraction(sympy.prod(numbers) ** 2)
    if len(roots) < 2 or (over * under).atoms(sympy.Pow):
        return [], factors
    rest = tuple(factor for factor in factors if factor not in numbers)
    sign = sympy.sign(sympy.prod(numbers))
    half = sympy.S.Half
    root = (under, Number(-half)) if over == 1 else (over / under, Number(half))
    return [root], (sign, *rest)


def _piecewise(pairs: tuple[ExprCondPair, ...], symbols: Mapping[sympy.Symbol, Tree]) -> Tree:
    """Nested choices; the last branch holds where no condition does (NumPy's nan otherwise)."""
    (value, condition), *rest = pairs
    yes = convert(value, symbols)
    if condition == sympy.true:
        return yes
    no = _piecewise(tuple(rest), symbols) if rest else Number(sympy.S.NaN)
    return entrywise.choice(convert(condition, symbols), yes, no)
