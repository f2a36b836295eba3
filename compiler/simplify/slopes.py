"""Derivatives of functions of lengths' squares in lowest terms, without quotients that cancel."""

from __future__ import annotations

import math
from collections.abc import Iterable

import sympy

from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.nodes import Map, slot
from derivatrix.compiler.simplify.squares import roots


def slope(node: Map, place: int) -> sympy.Expr:
    """Differentiate a function of arrays by its argument at a place."""
    variable = slot(place)
    if node.expression.has(sympy.Abs(variable)) and not node.expression.has(sympy.Piecewise):
        result = _slope_by_parity(node.expression, variable)
        if result is not None:
            return result
    result = scalar_functions.derivative(node.expression, slot(place))
    squares = {power.base for power in roots(node)} & result.free_symbols
    return reduced(result, sorted(squares, key=str)) if squares else result


def _slope_by_parity(expression: sympy.Expr, variable: sympy.Symbol) -> sympy.Expr | None:
    """Differentiate an even or odd function of x and |x| in lowest terms of |x|; None for others.
    The derivative of f(|x|) is (f'(|x|)/|x|) x where this has a value at 0, else f'(|x|)
    sign(x)."""
    length, sign = sympy.Symbol("length", positive=True), sympy.Symbol("sign", real=True)
    names = {sympy.Abs(variable): length, sympy.sign(variable): sign, variable: sign * length}
    inside = expression.xreplace(names)
    try:
        at_positive, at_negative = (inside.xreplace({sign: s}) for s in (sympy.S.One, -sympy.S.One))
    except ValueError:  # SymPy refuses to compare the root of a negative number
        return None
    result = reduced(scalar_functions.derivative(at_positive, length), [length])
    if sympy.expand(at_positive + at_negative) == 0:
        return result.xreplace({length: sympy.Abs(variable)})
    if sympy.expand(at_positive - at_negative) != 0:
        return None
    ratio = reduced(result / length, [length])
    if is_finite(ratio.xreplace({length: sympy.S.Zero})):
        return variable * ratio.xreplace({length: sympy.Abs(variable)})
    return sympy.sign(variable) * result.xreplace({length: sympy.Abs(variable)})


def reduced(expression: sympy.Expr, squares: Iterable[sympy.Symbol]) -> sympy.Expr:
    """Write an expression as a quotient in lowest terms of the roots of `squares`, of other symbols
    and of functions of them."""
    expression = sympy.piecewise_fold(expression)
    if isinstance(expression, sympy.Piecewise):
        pieces = [(reduced(part, squares), condition) for part, condition in expression.args]
        return sympy.Piecewise(*pieces)
    orders = {square: root_order(expression, square) for square in squares}
    names = {square: sympy.Symbol(f"root{square.name}", positive=True) for square in orders}
    powers = {square: root ** orders[square] for square, root in names.items()}
    rational, functions = _rational(expression.xreplace(powers))
    lowest = sympy.factor(sympy.cancel(rational)).xreplace(functions)
    back = {root: square ** sympy.Rational(1, orders[square]) for square, root in names.items()}
    return lowest.xreplace(back)


def root_order(expression: sympy.Expr, square: sympy.Symbol) -> int:
    """Return the least q for which powers of `square` are powers of its q-th root."""
    powers = [p.exp for p in expression.atoms(sympy.Pow) if p.base == square and p.exp.is_Rational]
    return math.lcm(*(exponent.q for exponent in powers))


def _rational(expression: sympy.Expr) -> tuple[sympy.Expr, dict[sympy.Expr, sympy.Expr]]:
    """Write an expression as a rational function of symbols and of placeholders for all else.
    Returns it and the values of the placeholders. Decimal numbers get placeholders, too: they
    cancel only exactly."""
    parts: dict[sympy.Expr, sympy.Expr] = {}

    def rational_part(part: sympy.Expr) -> sympy.Expr:
        if part.is_Symbol or part.is_Rational:
            return part
        if isinstance(part, sympy.Add | sympy.Mul):
            return part.func(*map(rational_part, part.args))
        if isinstance(part, sympy.Pow) and part.exp.is_Integer:
            return rational_part(part.base) ** part.exp
        if part.is_Float and part.is_negative:
            return -rational_part(-part)
        return parts.setdefault(part, sympy.Dummy(real=True))

    result = rational_part(expression)
    ordered = sorted(parts, key=sympy.default_sort_key)  # which decides on signs of factors
    names = {part: sympy.Symbol(f"f_{i}", real=True) for i, part in enumerate(ordered)}
    result = result.xreplace({dummy: names[part] for part, dummy in parts.items()})
    return result, {name: part for part, name in names.items()}


def is_finite(expression: sympy.Expr) -> bool:
    return not expression.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo)
