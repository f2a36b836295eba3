"""Jacobians as sums of products with factors as small as possible.

Products within products are spliced, and products of sums multiplied out, where that leaves
smaller factors: p[i] (W[i,k] - u[k]) becomes p[i] W[i,k] - p[i] u[k], but X[i,k] + C[i,k] remains
one matrix.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.compiler.ir.graph import masked
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.plan.nominal_sizes import nominal

MAX_TERMS = 64
"""Most terms to which a product of sums is multiplied out."""
MAX_FACTORS = 64
"""Most factors of a product into which products are spliced."""


def products(node: ir.Node) -> list[Product]:
    """Write `node` as a sum of products."""
    return Product.of_factor(node).rewritten(_multiply_out)


def _multiply_out(product: Product, other_terms: int) -> list[Product] | None:
    """Multiply out a composite factor; None if there is none, or if the sum, which has
    `other_terms` besides, or the product would be too large."""
    is_single = len(product.factors) == 1
    for position, (node, _) in enumerate(product.factors):
        inner = masked(node)
        if not isinstance(inner, ir.Einsum | ir.Sum) or not (is_single or _is_composite(inner)):
            continue
        if isinstance(inner, ir.Sum):
            is_small = len(inner.terms) + other_terms <= MAX_TERMS
        else:
            is_small = len(inner.factors) + len(product.factors) <= MAX_FACTORS
        if is_single or is_small:
            return product.multiplied_out(position, inner)
    return None


@lru_cache(maxsize=65536)
def _is_composite(node: ir.Node) -> bool:
    """Return whether a node consists of smaller ones, or of structural factors."""
    node = masked(node)
    match node:
        case ir.Sum():
            return all(
                _is_composite(term) or isinstance(term, ir.Structural) for term in node.terms
            )
        case ir.Einsum():
            if any(isinstance(factor, ir.Structural) for factor, _ in node.factors):
                return True
            factors = [factor for factor, _ in node.factors]
            return all(volume(f.shape) < volume(node.shape) or _is_composite(f) for f in factors)
    return False


def volume(sizes: Iterable[Dimension]) -> float:
    """Count entries, with nominal sizes."""
    return math.prod(nominal(size) for size in sizes)
