"""Joining of contractions with a common factor in sums: A P + B P is (A + B) P.

The sum within is joined, too. So the cotangents of a network are added layer by layer, instead of
each being multiplied by the Jacobians of all layers before it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.graph import rebuilt, references
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.plan.contraction_order import Numbers
from derivatrix.compiler.plan.index_arithmetic import loop_indices
from derivatrix.compiler.plan.nominal_sizes import product

Group = dict[ir.Einsum, Product]
"""Terms with a factor in common, as products whose summed labels are numbered alike."""


def join_contractions(roots: Sequence[ir.Node], numbers: Numbers) -> dict[ir.Node, ir.Node]:
    """Join contractions with one reader, if that takes fewer operations. Returns node -> its new
    form; numbers: the numbers assumed for sizes."""
    join = _Join(roots, numbers)
    new: dict[ir.Node, ir.Node] = {}
    for node in ir.topological(roots):
        new_node = rebuilt(node, new)
        if isinstance(new_node, ir.Sum):
            new_node = _sum(join.terms(new_node.terms, new_node.shape), new_node.shape)
        if new_node != node:
            join.uses[new_node] += join.uses[node]
        new[node] = new_node
    return new


class _Join:
    """One pass over the nodes of a kernel; uses: node -> how often it is read."""

    def __init__(self, roots: Sequence[ir.Node], numbers: Numbers) -> None:
        self._numbers = numbers
        self.uses = Counter(roots)
        for node in ir.topological(roots):
            self.uses.update(references(node))

    def terms(self, terms: Sequence[ir.Node], shape: Shape) -> list[ir.Node]:
        """Join terms of a sum of this shape."""
        terms_left = list(terms)
        while (best := self._best(terms_left, shape)) is not None:
            members, new = best
            terms_left = [*(term for term in terms_left if term not in members), new]
        return terms_left

    def _best(self, terms: Sequence[ir.Node], shape: Shape) -> tuple[Group, ir.Node] | None:
        """Find the largest group of terms that can be joined, and its joined form."""
        groups: dict[ir.Factor, Group] = defaultdict(dict)
        for term in terms:
            if isinstance(term, ir.Einsum) and self.uses[term] <= 1:
                for factor, product in _by_factor(term):
                    groups[factor][term] = product
        for factor, members in sorted(groups.items(), key=lambda group: -len(group[1])):
            if len(members) > 1 and (new := self._product(factor, members, shape)) is not None:
                return members, new
        return None

    def _product(self, factor: ir.Factor, members: Group, shape: Shape) -> ir.Einsum | None:
        """Multiply the common factor by the sum of the terms' other factors. Terms that contract
        nothing leave all of their common factors outside. None if no contraction is saved."""
        common, contracted = Counter([factor]), any(term.contracted for term in members)
        if not contracted:
            common = _common_factors(members)
        remainders = [_remaining(member, common) for member in members.values()]
        axes = remainders[0].output
        if not axes or any(remainder.output != axes for remainder in remainders):
            return None
        inner = [self._inlined(remainder) for remainder in remainders]
        sizes = inner[0].shape
        fewer = self.terms(inner, sizes)
        factors = [*common.elements(), (_sum(fewer, sizes), axes)]
        new = ir.einsum(factors, range(len(shape)), sizes=dict(enumerate(shape)))
        if len(fewer) < len(inner):
            return new
        addition_cost = 4 * len(inner) * self._numbers(product(sizes))
        # outer products stay apart: joined, their loops were fused worse (a Kalman update's VJP of
        # 40 states took 14.6 µs instead of 9.0)
        if contracted and self._cost(new) + addition_cost < sum(map(self._cost, members)):
            return new
        return None

    def _inlined(self, remainder: Product) -> ir.Node:
        """Return the node of a product; a product that is its only factor is inlined, unless other
        nodes read that factor, too."""
        (node, _), *further_factors = remainder.factors
        if not further_factors and isinstance(node, ir.Einsum) and self.uses[node] <= 1:
            remainder = remainder.inlined(0)
        return remainder.node

    def _cost(self, node: ir.Einsum) -> float:
        return sum(weight * self._numbers(size) for weight, size in work(node))


def work(node: ir.Einsum) -> list[tuple[int, sympy.Expr]]:
    """Return the cost of a product, for arithmetic and for writing the result, as a list of
    (weight, product of sizes)."""
    loops = tuple(node.sizes[label] for label in loop_indices(node).loops)
    return [(2, product(loops)), (4, product(node.shape))]


def _sum(terms: Sequence[ir.Node], shape: Shape) -> ir.Node:
    return terms[0] if len(terms) == 1 else ir.Sum(tuple(terms), shape)


def _common_factors(members: Group) -> Counter[ir.Factor]:
    """Count the arrays that all products have as factors."""
    common, *factor_counts = (Counter(product.factors) for product in members.values())
    for factors in factor_counts:
        common &= factors
    return Counter({f: times for f, times in common.items() if not isinstance(f[0], ir.Structural)})


def _by_factor(term: ir.Einsum) -> Iterator[tuple[ir.Factor, Product]]:
    """Yield each array of a product, and the product relabelled: the summed labels of the array
    come first, so that the same array has the same labels in each term."""
    product = Product.of(term)
    for position, (node, labels) in enumerate(term.factors):
        summed = [label for label in dict.fromkeys(labels) if label >= term.ndim]
        other_labels = ir.labels_of(product.without(position).factors)
        if isinstance(node, ir.Structural) or not {*summed} <= {*other_labels}:
            continue
        further_labels = [label for label in term.contracted if label not in summed]
        order = [*range(term.ndim), *summed, *further_labels]
        names = {label: place for place, label in enumerate(order)}
        sizes = {names[label]: size for label, size in product.sizes.items()}
        factors = ir.relabelled(product.factors, names)
        yield factors[position], replace(product, factors=factors, sizes=sizes)


def _remaining(product: Product, common: Counter[ir.Factor]) -> Product:
    """Remove the common factors from a product. Its axes are the labels that are axes of the whole
    product or labels of a common factor."""
    factors = tuple((Counter(product.factors) - common).elements())
    apart = {*product.output, *ir.labels_of(common)}
    axes = tuple(label for label in sorted(ir.labels_of(factors)) if label in apart)
    sizes = {k: size for k, size in product.sizes.items() if k in axes or k not in apart}
    return replace(product, factors=factors, output=axes, sizes=sizes)
