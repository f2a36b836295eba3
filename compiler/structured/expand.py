"""A Jacobian as a sum of products, whose factors are as small as they come.

Products of products are spliced and products of sums multiplied out where that leaves smaller
factors behind: p[i] (W[i,k] - u[k]) becomes p[i] W[i,k] - p[i] u[k], while X[i,k] + C[i,k] stays
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

MOST_TERMS = 64
"""A product of sums is multiplied out up to so many terms."""
MOST_FACTORS = 64
"""Products are spliced into a product up to so many factors."""


def products(node: ir.Node) -> list[Product]:
    """The products whose sum `node` is."""
    return Product.of_factor(node).rewritten(_opened)


def _opened(product: Product, others: int) -> list[Product] | None:
    """The products that one with a composite factor is the sum of; None if it has none."""
    single = len(product.factors) == 1
    for position, (node, _) in enumerate(product.factors):
        inner = masked(node)
        if not isinstance(inner, ir.Einsum | ir.Sum) or not (single or _opens(inner)):
            continue
        if isinstance(inner, ir.Sum):
            few = len(inner.terms) + others <= MOST_TERMS
        else:
            few = len(inner.factors) + len(product.factors) <= MOST_FACTORS
        if single or few:
            return product.multiplied_out(position, inner)
    return None


@lru_cache(maxsize=65536)
def _opens(node: ir.Node) -> bool:
    """Whether a node consists of smaller ones, or has structure of its own."""
    node = masked(node)
    match node:
        case ir.Sum():
            return all(_opens(term) or isinstance(term, ir.Structural) for term in node.terms)
        case ir.Einsum():
            if any(isinstance(factor, ir.Structural) for factor, _ in node.factors):
                return True
            return all(volume(f.shape) < volume(node.shape) or _opens(f) for f, _ in node.factors)
    return False


def volume(sizes: Iterable[Dimension]) -> float:
    """The number of entries, with nominal sizes."""
    return math.prod(nominal(size) for size in sizes)
