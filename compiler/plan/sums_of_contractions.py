"""Sums of contractions that have a factor in common, as one: A P + B P is (A + B) P.

The sum within is treated alike, so that what goes back through the layers of a network is added up
layer by layer, and not brought to the first one for each layer anew.
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


def joined(roots: Sequence[ir.Node], numbers: Numbers) -> dict[ir.Node, ir.Node]:
    """What each node becomes where contractions that nothing else reads are joined, if that takes
    fewer operations. `numbers`: how large sizes are taken to be."""
    join = _Join(roots, numbers)
    new: dict[ir.Node, ir.Node] = {}
    for node in ir.topological(roots):
        made = rebuilt(node, new)
        if isinstance(made, ir.Sum):
            made = _sum(join.terms(made.terms, made.shape), made.shape)
        if made != node:
            join.uses[made] += join.uses[node]
        new[node] = made
    return new


class _Join:
    """uses: how often each node is read."""

    def __init__(self, roots: Sequence[ir.Node], numbers: Numbers) -> None:
        self._numbers = numbers
        self.uses = Counter(roots)
        for node in ir.topological(roots):
            self.uses.update(references(node))

    def terms(self, terms: Sequence[ir.Node], shape: Shape) -> list[ir.Node]:
        """The terms of a sum of this shape, with those joined that can be."""
        found = list(terms)
        while (best := self._best(found, shape)) is not None:
            members, new = best
            found = [*(term for term in found if term not in members), new]
        return found

    def _best(self, terms: Sequence[ir.Node], shape: Shape) -> tuple[Group, ir.Node] | None:
        """The most terms that can be joined, and what they become."""
        groups: dict[ir.Factor, Group] = defaultdict(dict)
        for term in terms:
            if isinstance(term, ir.Einsum) and self.uses[term] <= 1:
                for factor, whole in _by_factor(term):
                    groups[factor][term] = whole
        for factor, members in sorted(groups.items(), key=lambda group: -len(group[1])):
            if len(members) > 1 and (new := self._product(factor, members, shape)) is not None:
                return members, new
        return None

    def _product(self, factor: ir.Factor, members: Group, shape: Shape) -> ir.Einsum | None:
        """The common factor times the sum of what is left of the terms; where nothing is summed
        over, all that they have in common times it. None where that saves no contraction."""
        common, contracted = Counter([factor]), any(term.contracted for term in members)
        if not contracted:
            common = _alike(members)
        rests = [_rest(whole, common) for whole in members.values()]
        axes = rests[0].output
        if not axes or any(rest.output != axes for rest in rests):
            return None
        inner = [self._opened(rest) for rest in rests]
        sizes = inner[0].shape
        fewer = self.terms(inner, sizes)
        factors = [*common.elements(), (_sum(fewer, sizes), axes)]
        new = ir.einsum(factors, range(len(shape)), sizes=dict(enumerate(shape)))
        if len(fewer) < len(inner):
            return new
        added = 4 * len(inner) * self._numbers(product(sizes))
        if contracted and self._cost(new) + added < sum(map(self._cost, members)):
            return new
        return None

    def _opened(self, rest: Product) -> ir.Node:
        """The node of a rest; where that is one factor that nothing else reads, as what that is
        made of."""
        (node, _), *others = rest.factors
        if not others and isinstance(node, ir.Einsum) and self.uses[node] <= 1:
            rest = rest.inlined(0)
        return rest.node

    def _cost(self, node: ir.Einsum) -> float:
        return sum(weight * self._numbers(size) for weight, size in work(node))


def work(node: ir.Einsum) -> list[tuple[int, sympy.Expr]]:
    """What a product costs, multiplications and additions and the writing of the result, as
    (weight, product of sizes)."""
    loops = tuple(node.sizes[label] for label in loop_indices(node).loops)
    return [(2, product(loops)), (4, product(node.shape))]


def _sum(terms: Sequence[ir.Node], shape: Shape) -> ir.Node:
    return terms[0] if len(terms) == 1 else ir.Sum(tuple(terms), shape)


def _alike(members: Group) -> Counter[ir.Factor]:
    """The arrays that all products have."""
    first, *others = (Counter(whole.factors) for whole in members.values())
    for other in others:
        first &= other
    return Counter({f: times for f, times in first.items() if not isinstance(f[0], ir.Structural)})


def _by_factor(term: ir.Einsum) -> Iterator[tuple[ir.Factor, Product]]:
    """Each array of a product, and the product with the labels that this array is summed over
    numbered first, so that the same array has the same labels in each term."""
    whole = Product.of(term)
    for position, (node, labels) in enumerate(term.factors):
        summed = [label for label in dict.fromkeys(labels) if label >= term.ndim]
        left = ir.labels_of(whole.without(position).factors)
        if isinstance(node, ir.Structural) or not {*summed} <= {*left}:
            continue
        rest = [label for label in term.contracted if label not in summed]
        order = [*range(term.ndim), *summed, *rest]
        names = {label: place for place, label in enumerate(order)}
        sizes = {names[label]: size for label, size in whole.sizes.items()}
        factors = ir.relabelled(whole.factors, names)
        yield factors[position], replace(whole, factors=factors, sizes=sizes)


def _rest(whole: Product, common: Counter[ir.Factor]) -> Product:
    """The product without its common factors. Its axes are those labels that the whole has as axes
    or the factors have."""
    factors = tuple((Counter(whole.factors) - common).elements())
    apart = {*whole.output, *ir.labels_of(common)}
    axes = tuple(label for label in sorted(ir.labels_of(factors)) if label in apart)
    sizes = {k: size for k, size in whole.sizes.items() if k in axes or k not in apart}
    return replace(whole, factors=factors, output=axes, sizes=sizes)
