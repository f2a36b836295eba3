"""Facts about the signs of an array's entries that follow from its construction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir import scalar_functions

POSITIVE = (
    scalar_functions.sigmoid,
    scalar_functions.softplus,
    scalar_functions.normcdf,
    scalar_functions.inverse_mills,
)
"""Functions that SymPy does not know to be positive."""


@lru_cache(maxsize=65536)
def is_positive(node: ir.Node) -> bool:
    """Return whether every entry is known to be positive."""
    match node:
        case ir.Leaf():
            return node.structure in ("positive", "simplex")
        case ir.Constant():
            return bool((node.array > 0).all())
        case ir.Sum() if node.terms:
            return all(map(is_nonnegative, node.terms)) and any(map(is_positive, node.terms))
        case ir.Map():
            return bool(_expression(node).is_positive)
        case ir.Einsum():
            factors = [factor for factor, _ in node.factors]
            return bool(node.coefficient.is_positive) and all(map(is_positive, factors))
    return False


@lru_cache(maxsize=65536)
def is_nonnegative(node: ir.Node) -> bool:
    """Return whether every entry is known to be at least 0."""
    match node:
        case ir.Leaf():
            return node.structure in ("positive", "nonneg", "simplex")
        case ir.Constant():
            return bool((node.array >= 0).all())
        case ir.Structural():
            return True
        case ir.Sum():
            return all(map(is_nonnegative, node.terms))
        case ir.Map():
            return bool(_expression(node).is_nonnegative)
        case ir.Einsum():
            return bool(node.coefficient.is_nonnegative) and is_nonnegative_product(node.factors)
    return False


def is_nonnegative_product(factors: Iterable[ir.Factor]) -> bool:
    """Return whether a product of entries is at least 0: each factor is, or occurs with the same
    labels an even number of times."""
    return all(
        count % 2 == 0 or is_nonnegative(node) for (node, _), count in Counter(factors).items()
    )


def _expression(node: ir.Map) -> sympy.Expr:
    """Return the function's expression, with the signs of its arguments as assumptions."""
    # None leaves a sign open; False would say that no entry can be positive.
    signed = {
        ir.slot(position): sympy.Dummy(
            real=True,
            positive=is_positive(argument) or None,
            nonnegative=is_nonnegative(argument) or None,
        )
        for position, argument in enumerate(node.arguments)
    }
    expression = node.expression.replace(
        lambda part: isinstance(part, POSITIVE), lambda part: sympy.Dummy(positive=True)
    )
    return expression.xreplace(signed)
