"""Rough growth of entries with the inputs: which factors of a product are large together."""

from __future__ import annotations

from functools import lru_cache

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.scalar_values import Scalars
from derivatrix.compiler.plan.contraction_order import is_inverse


@lru_cache(maxsize=65536)
def degree(node: ir.Node) -> float:
    """Return d such that the entries grow as tᵈ when all inputs, but no cotangents and tangents,
    are multiplied by t; the largest d of the terms for a sum."""
    match node:
        case ir.Leaf():
            return float(node.role == "input")
        case ir.Sum() if node.terms:
            return max(map(degree, node.terms))
        case ir.Einsum():
            return sum(degree(factor) for factor, _ in node.factors)
        case ir.Map():
            scalars = Scalars()
            slots = {
                ir.slot(place): scalars.name(f"_{place}", degree(argument))
                for place, argument in enumerate(node.arguments)
            }
            return scalars.degree(scalars.lower(node.expression, slots))
        case ir.Apply():
            largest = max(degree(argument) for argument, _ in node.arguments)
            return -largest if is_inverse(node) else largest
    return 0.0
