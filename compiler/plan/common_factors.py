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
    """The nodes with common factors taken out of their sums, and into the products around these."""
    pulled: set[ir.Node] = set()

    def change(node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Sum):
            node = _pulled(node)
            if isinstance(node, ir.Einsum):
                pulled.add(node)
        elif isinstance(node, ir.Einsum) and pulled.intersection(node.children):
            node = _flat(node, pulled)
            if not node.contracted:
                pulled.add(node)
        return node

    return transformed(roots, change)


def _pulled(total: ir.Sum) -> ir.Node:
    """The sum; as one product where all terms have a common factor."""
    terms = list(total.terms)
    found: list[ir.Node] = []
    while True:
        group = _group(terms)
        if group is None:
            break
        members, common = group
        terms = [term for term in terms if term not in members]
        found.append(_product(total, members, common))
    if not found:
        return total
    if len(found) == 1 and not terms:
        return found[0]
    return ir.Sum((*terms, *found), total.shape)


def _group(terms: Sequence[ir.Node]) -> tuple[list[ir.Einsum], Factors] | None:
    """The largest group of terms with factors in common that only they have some axis by."""
    products = [term for term in terms if isinstance(term, ir.Einsum)]
    having = Counter(factor for term in products for factor in _outer(term))
    best: tuple[list[ir.Einsum], Factors] | None = None
    for factor, count in having.items():
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
    """The arrays in a product whose axes are all axes of the result."""
    return Counter(
        (node, labels)
        for node, labels in term.factors
        if not isinstance(node, ir.Structural) and labels and max(labels) < term.ndim
    )


def _axes(members: Sequence[ir.Einsum], common: Factors) -> list[int]:
    """The axes of the result that the terms have without the common factors."""
    left = ir.labels_of(factor for term in members for factor in _rest(term, common))
    return sorted(label for label in left if label < members[0].ndim)


def _rest(term: ir.Einsum, common: Factors) -> list[ir.Factor]:
    return list((Counter(term.factors) - common).elements())


def _product(total: ir.Sum, members: Sequence[ir.Einsum], common: Factors) -> ir.Einsum:
    """The common factors times the sum of what is left of the members."""
    axes = _axes(members, common)
    sizes = dict(enumerate(total.shape))
    terms = tuple(
        ir.einsum(
            _rest(term, common),
            axes,
            term.coefficient,
            sizes={label: term.sizes[label] for label in (*axes, *term.contracted)},
        )
        for term in members
    )
    inner = ir.Sum(terms, tuple(total.shape[axis] for axis in axes))
    factors = [*common.elements(), (inner, tuple(axes))]
    return ir.einsum(factors, range(len(total.shape)), sizes=sizes)


def _flat(node: ir.Einsum, pulled: set[ir.Node]) -> ir.Einsum:
    """The product with the factors of those of its factors that were pulled apart."""
    product = Product.of(node)
    for position, (factor, _) in reversed([*enumerate(node.factors)]):
        if factor in pulled:
            product = product.inlined(position)
    return product.node
