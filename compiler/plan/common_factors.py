"""Common factors of sums, where pulling them out leaves a sum of fewer axes.

Σ_t x[j] M_t[i, k] is x[j] (Σ_t M_t)[i, k]: the sum has two axes instead of three, and so have the
products that it is a factor of once x[j] is a factor of theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.graph import transformed
from derivatrix.compiler.ir.product import Product

Factors = Counter[ir.Factor]
"""Labelled factors, and how often each occurs."""


def pull_out(roots: Sequence[ir.Node]) -> list[ir.Node]:
    """Take common factors out of sums, and into the products around these."""
    pulled: set[ir.Node] = set()

    def change(node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Sum):
            node = _with_factors_out(node)
            if isinstance(node, ir.Einsum):
                pulled.add(node)
        elif isinstance(node, ir.Einsum) and pulled.intersection(node.children):
            node = _with_products_inlined(node, pulled)
            if not node.contracted:
                pulled.add(node)
        return node

    return transformed(roots, change)


def _with_factors_out(total: ir.Sum) -> ir.Node:
    """Take common factors out of groups of terms; a product if all terms are in one group."""
    terms = list(total.terms)
    products: list[ir.Node] = []
    while (group := _group(terms)) is not None:
        members, common = group
        terms = [term for term in terms if term not in members]
        products.append(_product(total, members, common))
    if not products:
        return total
    if len(products) == 1 and not terms:
        return products[0]
    return ir.Sum((*terms, *products), total.shape)


def _group(terms: Sequence[ir.Node]) -> tuple[list[ir.Einsum], Factors] | None:
    """Find the largest group of terms whose sum loses an axis with their common factors."""
    products = [term for term in terms if isinstance(term, ir.Einsum)]
    term_counts = Counter(factor for term in products for factor in _outer(term))
    best: tuple[list[ir.Einsum], Factors] | None = None
    for factor, count in term_counts.items():
        if count < 2 or (best is not None and count <= len(best[0])):
            continue
        members = [term for term in products if factor in _outer(term)]
        common = _outer(members[0])
        for term in members[1:]:
            common &= _outer(term)
        if len(_axes(members, common)) < members[0].ndim:
            best = members, common
    return best


def _outer(term: ir.Einsum) -> Factors:
    """Count the arrays in a product all of whose axes are axes of the result."""
    return Counter(
        (node, labels)
        for node, labels in term.factors
        if not isinstance(node, ir.Structural) and labels and max(labels) < term.ndim
    )


def _axes(members: Sequence[ir.Einsum], common: Factors) -> list[int]:
    """List the axes of the result that the terms have without the common factors."""
    labels = ir.labels_of(factor for term in members for factor in _remaining_factors(term, common))
    return sorted(label for label in labels if label < members[0].ndim)


def _remaining_factors(term: ir.Einsum, common: Factors) -> list[ir.Factor]:
    return list((Counter(term.factors) - common).elements())


def _product(total: ir.Sum, members: Sequence[ir.Einsum], common: Factors) -> ir.Einsum:
    """Multiply the common factors by the sum of the members' remaining factors."""
    axes = _axes(members, common)
    sizes = dict(enumerate(total.shape))
    terms = tuple(
        ir.einsum(
            _remaining_factors(term, common),
            axes,
            term.coefficient,
            sizes={label: term.sizes[label] for label in (*axes, *term.contracted)},
        )
        for term in members
    )
    inner = ir.Sum(terms, tuple(total.shape[axis] for axis in axes))
    factors = [*common.elements(), (inner, tuple(axes))]
    return ir.einsum(factors, range(len(total.shape)), sizes=sizes)


def _with_products_inlined(node: ir.Einsum, pulled: set[ir.Node]) -> ir.Einsum:
    """Inline those factors of a product that became products when factors were pulled out."""
    product = Product.of(node)
    for position, (factor, _) in reversed([*enumerate(node.factors)]):
        if factor in pulled:
            product = product.inlined(position)
    return product.node
