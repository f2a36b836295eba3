"""Differences from 1 that lose their digits where the function is near 1: 1 - exp(z) at z = 0."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import sympy

from derivatrix.compiler.ir.arrays import Array, elementwise, scale
from derivatrix.compiler.ir.nodes import Einsum, Map, Node, literal
from derivatrix.compiler.ir.scalar_functions import expm1


def complement(expression: sympy.Expr) -> sympy.Expr | None:
    """Write 1 - f as a function that keeps its digits; None if there is none."""
    if isinstance(expression, sympy.exp):
        return -expm1(expression.args[0])
    if expression.is_Pow and expression.exp == 2:
        match expression.base:
            case sympy.cos(args=(z,)):
                return sympy.sin(z) ** 2
            case sympy.sin(args=(z,)):
                return sympy.cos(z) ** 2
            case sympy.cosh(args=(z,)):
                return -(sympy.sinh(z) ** 2)
    return None


def with_complements(expression: sympy.Expr) -> sympy.Expr:
    """Write all c - c f in a function of entries as c times the complement of f."""
    return expression.replace(lambda part: part.is_Add, _sum_with_complement)


def _sum_with_complement(total: sympy.Expr) -> sympy.Expr:
    number = total.as_coeff_Add()[0]
    for term in total.args if number else ():
        coefficient, function = term.as_coeff_Mul()
        if coefficient == -number and (difference := complement(function)) is not None:
            return total - number - term + number * difference
    return total


def terms_with_complement(terms: Sequence[Node]) -> list[Node] | None:
    """Write two terms c - c f of a sum as c times the complement of f; None if there are none."""
    for number, term in permutations(terms, 2):
        coefficient = literal(number)
        if not coefficient or not isinstance(term, Einsum) or term.coefficient != -coefficient:
            continue
        (function, labels), *other_factors = term.factors
        if not isinstance(function, Map) or labels != tuple(range(term.ndim)) or term.contracted:
            continue
        if any(factor != (function, labels) for factor in other_factors):
            continue
        if (difference := complement(function.expression ** len(term.factors))) is not None:
            replaced = scale(elementwise(difference, *map(Array, function.arguments)), coefficient)
            return [replaced.node, *(t for t in terms if t not in (number, term))]
    return None
