"""SymPy scalar expressions as trees, entry by entry."""

from __future__ import annotations

from collections.abc import Mapping

import sympy
from sympy.core.relational import Relational
from sympy.functions.elementary.piecewise import ExprCondPair

from derivatrix.compiler.formulas import algebra
from derivatrix.compiler.formulas.tree import Number, Size, Tree
from derivatrix.runtime.errors import UnsupportedError

ONE = sympy.S.One


def convert(expression: sympy.Basic, symbols: Mapping[sympy.Symbol, Tree], rank: int) -> Tree:
    """The tree of an expression; `symbols`: the arrays its symbols stand for, of this rank.
    Other symbols are dimensions.

    Raises UnsupportedError for what is neither arithmetic, a function nor a condition.
    """

    def parts(arguments: tuple[sympy.Basic, ...]) -> list[Tree]:
        return [convert(argument, symbols, rank) for argument in arguments]

    match expression:
        case sympy.Symbol():
            return symbols.get(expression) or Size(expression.name)
        case sympy.Number() | sympy.NumberSymbol():
            return Number(expression)
        case sympy.Add():
            return algebra.add(parts(expression.args), rank)
        case sympy.Mul():
            return algebra.hadamard(parts(expression.args), rank)
        case sympy.Pow():
            return algebra.raised(*_two(parts(expression.args)))
        case sympy.Piecewise():
            return _piecewise(expression.args, symbols, rank)
        case Relational():
            return algebra.relation(expression.rel_op, *_two(parts(expression.args)), rank)
        case sympy.And() | sympy.Or() | sympy.Not():
            ordered = tuple(sorted(expression.args, key=sympy.default_sort_key))
            return algebra.logic(type(expression).__name__.lower(), parts(ordered), rank)
        case sympy.logic.boolalg.BooleanAtom():
            return Number(ONE if expression else sympy.S.Zero)
        case sympy.Function() | sympy.Max() | sympy.Min():
            arguments = expression.args
            if not isinstance(expression, sympy.Function) or expression.is_commutative is None:
                arguments = tuple(sorted(arguments, key=sympy.default_sort_key))
            return algebra.function(type(expression), parts(arguments), rank)
    raise UnsupportedError(f"{expression} has no formula: {type(expression).__name__} is unknown")


def _two(trees: list[Tree]) -> tuple[Tree, Tree]:
    first, second = trees
    return first, second


def _piecewise(
    pairs: tuple[ExprCondPair, ...], symbols: Mapping[sympy.Symbol, Tree], rank: int
) -> Tree:
    """Nested choices; the last branch holds where no condition does (NumPy's nan otherwise)."""
    (value, condition), *rest = pairs
    yes = convert(value, symbols, rank)
    if condition == sympy.true:
        return yes
    no = _piecewise(tuple(rest), symbols, rank) if rest else Number(sympy.S.NaN)
    return algebra.choice(convert(condition, symbols, rank), yes, no, rank)


def coefficient(expression: sympy.Expr) -> Tree:
    """A number or polynomial in dimensions as a scalar tree."""
    return convert(expression, {}, 0)
