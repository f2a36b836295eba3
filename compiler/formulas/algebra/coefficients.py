"""Scalars stand in front, equal ones as powers."""

from __future__ import annotations

from collections.abc import Iterable

import sympy

from derivatrix.compiler.formulas.algebra import entrywise, order, products
from derivatrix.compiler.formulas.tree import (
    Number,
    Raise,
    Scale,
    Spread,
    Tree,
    Zeros,
)

ONE = sympy.S.One


def scale(coefficient: sympy.Expr, scalars: Iterable[Tree], body: Tree | None = None) -> Tree:
    """coefficient * product of scalar trees * body."""
    pending = list(scalars)
    if isinstance(body, Spread):
        return entrywise.spread(scale(coefficient, pending, body.body), body.along, body.shape)
    if isinstance(body, Zeros):
        return body
    if body is not None and body.rank == 0:
        pending.append(body)
        body = None
    powers: dict[Tree, sympy.Expr] = {}
    while pending or isinstance(body, Scale):
        if isinstance(body, Scale):
            factor: Tree = Scale(body.coefficient, body.scalars, None)
            body = body.body
        else:
            factor = pending.pop(0)
        if isinstance(factor, Scale):
            coefficient *= factor.coefficient
            pending[:0] = factor.scalars
        elif isinstance(factor, Number) and (factor.value.is_Rational or factor.value.is_Float):
            coefficient *= factor.value
        else:
            multiply_in(powers, factor)
    return _scaled(coefficient, powers, body)


def _scaled(coefficient: sympy.Expr, powers: dict[Tree, sympy.Expr], body: Tree | None) -> Tree:
    if coefficient.is_Float and float(coefficient).is_integer():
        coefficient = sympy.Integer(int(coefficient))
    kept = [products.raised(base, Number(exponent)) for base, exponent in powers.items()]
    kept.sort(key=order.scalar_order)
    if body is None and not kept:
        return Number(coefficient)
    if coefficient == 1 and not kept and body is not None:
        return body
    if coefficient == 1 and body is None and len(kept) == 1:
        return kept[0]
    return Scale(coefficient, tuple(kept), body)


def multiply_in(powers: dict[Tree, sympy.Expr], factor: Tree) -> None:
    """Collect equal factors, as numeric powers."""
    base, exponent = factor, ONE
    if isinstance(factor, Raise) and isinstance(factor.exponent, Number):
        base, exponent = factor.body, factor.exponent.value
    powers[base] = powers.get(base, sympy.S.Zero) + exponent
    if powers[base] == 0:
        del powers[base]
