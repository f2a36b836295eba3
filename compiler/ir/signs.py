"""What is known of the signs of an array's entries by its construction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir import scalar_functions

POSITIVE = (scalar_functions.sigmoid, scalar_functions.softplus, scalar_functions.normcdf)
"""Functions that SymPy does not know to be positive."""


@lru_cache(maxsize=65536)
def positive(node: ir.Node) -> bool:
    """Whether every entry is known to be positive."""
    match node:
        case ir.Leaf():
            return node.structure in ("positive", "simplex")
        case ir.Constant():
            return bool((node.array > 0).all())
        case ir.Sum() if node.terms:
            return all(map(nonnegative, node.terms)) and any(map(positive, node.terms))
        case ir.Map():
            return bool(_expression(node).is_positive)
        case ir.Einsum():
            factors = [factor for factor, _ in node.factors]
            return bool(node.coefficient.is_positive) and all(map(positive, factors))
    return False


@lru_cache(maxsize=65536)
def nonnegative(node: ir.Node) -> bool:
    """Whether no entry is known to be negative."""
    match node:
        case ir.Leaf():
            return node.structure in ("positive", "nonneg", "simplex")
        case ir.Constant():
            return bool((node.array >= 0).all())
        case ir.Structural():
            return True
        case ir.Sum():
            return all(map(nonnegative, node.terms))
        case ir.Map():
            return bool(_expression(node).is_nonnegative)
        case ir.Einsum():
            return bool(node.coefficient.is_nonnegative) and product_nonnegative(node.factors)
    return False


def product_nonnegative(factors: Iterable[ir.Factor]) -> bool:
    """Whether a product of entries is not negative: its factors are not, or stand in it an even
    number of times with the same labels."""
    return all(count % 2 == 0 or nonnegative(node) for (node, _), count in Counter(factors).items())


def _expression(node: ir.Map) -> sympy.Expr:
    """The function's expression, with what is known of its arguments."""
    known = {
        ir.slot(position): sympy.Dummy(
            real=True,
            positive=positive(argument) or None,
            nonnegative=nonnegative(argument) or None,
        )
        for position, argument in enumerate(node.arguments)
    }
    expression = node.expression.replace(
        lambda part: isinstance(part, POSITIVE), lambda part: sympy.Dummy(positive=True)
    )
    return expression.xreplace(known)
