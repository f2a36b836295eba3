"""A product taken apart: coefficient, labelled factors, output labels, sizes."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import sympy

from derivatrix.compiler.ir.dimensions import Dimension, Shape
from derivatrix.compiler.ir.nodes import (
    Delta,
    Einsum,
    Factor,
    Labels,
    Node,
    Sum,
    einsum,
    labels_of,
    relabelled,
)


@dataclass(frozen=True)
class Product:
    """The parts of an `Einsum` with free integer labels; `output` need not be 0, 1, ..., and may
    have a label twice, for entries that are zero off a diagonal."""

    coefficient: sympy.Expr
    factors: tuple[Factor, ...]
    output: Labels
    sizes: Mapping[int, Dimension]

    @staticmethod
    def of(node: Einsum) -> Product:
        """The product that `node` is."""
        sizes = dict(enumerate(node.sizes))
        return Product(node.coefficient, node.factors, tuple(range(node.ndim)), sizes)

    @staticmethod
    def reduced(node: Einsum) -> Product:
        """The product that `node` is, without deltas that only rename labels, and with the sizes of
        summed labels that no factor has as numbers."""
        return Product.of(node).without_deltas(range(node.ndim)).counted()

    @staticmethod
    def whole(node: Node) -> Product:
        """The product with `node` as its one factor."""
        axes = tuple(range(node.ndim))
        return Product(sympy.S.One, ((node, axes),), axes, dict(enumerate(node.shape)))

    @property
    def node(self) -> Einsum:
        """The product as a node; no label may be twice in its output."""
        return einsum(self.factors, self.output, self.coefficient, self.sizes)

    @property
    def shape(self) -> Shape:
        return tuple(self.sizes[label] for label in self.output)

    @property
    def summed(self) -> list[int]:
        """The labels of factors that are summed over, in the order met."""
        return [label for label in labels_of(self.factors) if label not in self.output]

    def private(self, label: int, mentions: int) -> bool:
        """Whether `label` is summed and mentioned just that often."""
        found = sum(own.count(label) for _, own in self.factors)
        return label not in self.output and found == mentions

    def fresh(self, count: int) -> Labels:
        """Labels that the product does not have."""
        first = max(self.sizes, default=-1) + 1
        return tuple(range(first, first + count))

    def scaled(self, factor: sympy.Expr) -> Product:
        """The product times a number."""
        return replace(self, coefficient=self.coefficient * factor)

    def times(self, *factors: Factor) -> Product:
        """The product with further factors."""
        sizes = dict(self.sizes)
        for node, labels in factors:
            sizes.update(zip(labels, node.shape, strict=True))
        return replace(self, factors=self.factors + factors, sizes=sizes)

    def without(self, *positions: int, summed: int | None = None) -> Product:
        """The product with the factors at `positions` left out, and with them the sum over
        the label `summed`."""
        kept = tuple(f for i, f in enumerate(self.factors) if i not in positions)
        sizes = {label: size for label, size in self.sizes.items() if label != summed}
        return replace(self, factors=kept, sizes=sizes)

    def with_factor(self, position: int, node: Node) -> Product:
        """The product with another node as the factor at a position."""
        factors = list(self.factors)
        factors[position] = (node, factors[position][1])
        return replace(self, factors=tuple(factors))

    def renamed(self, old: int, new: int) -> Product:
        """The product with the label `old` of factors called `new`."""
        names = {**{label: label for label in self.sizes}, old: new}
        sizes = {label: size for label, size in self.sizes.items() if label != old}
        return replace(self, factors=relabelled(self.factors, names), sizes=sizes)

    def without_deltas(self, apart: Container[int] = ()) -> Product:
        """The product with one label, the least, in place of those that deltas make equal; of
        the labels `apart`, less than all others, none in place of another."""
        names = {label: label for label in self.sizes}
        rest: list[Factor] = []
        for node, labels in self.factors:
            if isinstance(node, Delta):
                kept, gone = sorted(names[label] for label in labels)
                if kept == gone or gone not in apart:
                    names = {label: kept if name == gone else name for label, name in names.items()}
                    continue
            rest.append((node, labels))
        return Product(
            self.coefficient,
            relabelled(rest, names),
            tuple(names[label] for label in self.output),
            {label: size for label, size in self.sizes.items() if names[label] == label},
        )

    def counted(self) -> Product:
        """The product with the sizes of summed labels that no factor has as numbers."""
        used = {*self.output, *labels_of(self.factors)}
        if len(used) == len(self.sizes):
            return self
        unused = [size for label, size in self.sizes.items() if label not in used]
        sizes = {label: size for label, size in self.sizes.items() if label in used}
        return replace(self, coefficient=sympy.prod([self.coefficient, *unused]), sizes=sizes)

    def inlined(self, position: int) -> Product:
        """The product with the `Einsum` at `position` spliced in."""
        node, labels = self.factors[position]
        assert isinstance(node, Einsum)
        names = labels + self.fresh(len(node.contracted))
        spliced = relabelled(node.factors, names)
        return Product(
            self.coefficient * node.coefficient,
            self.factors[:position] + spliced + self.factors[position + 1 :],
            self.output,
            {**self.sizes, **dict(zip(names, node.sizes, strict=True))},
        )

    def opened(self, position: int, node: Einsum | Sum) -> list[Product]:
        """The products that this one is the sum of, with `node` as the factor at a position; what
        it is made of comes first."""
        own, rest = (node, self.factors[position][1]), self.without(position)
        first = replace(rest, factors=(own, *rest.factors))
        if isinstance(node, Sum):
            return [first.with_factor(0, term) for term in node.terms]
        return [first.inlined(0)]

    def expanded(self, opened: Callable[[Product, int], list[Product] | None]) -> list[Product]:
        """The products that are left, in order, where each is replaced by those that `opened`
        gives for it and the number of all others, until that is None."""
        pending, done = [self], list[Product]()
        while pending:
            product = pending.pop()
            found = opened(product, len(pending) + len(done))
            if found is None:
                done.append(product)
            else:
                pending += reversed(found)
        return done


Labelled = TypeVar("Labelled", bound=tuple[Any, Labels])


def components(factors: Sequence[Labelled], apart: Container[int]) -> list[list[Labelled]]:
    """The factors in groups linked by labels that are not in `apart`, in their order."""
    groups: list[tuple[set[int], list[int]]] = []
    for position, (_, labels) in enumerate(factors):
        own = {label for label in labels if label not in apart}
        linked = [group for group in groups if own & group[0]]
        groups = [group for group in groups if not own & group[0]]
        places = [place for _, places in linked for place in places]
        groups.append((own.union(*(inner for inner, _ in linked)), [*places, position]))
    ordered = sorted(sorted(places) for _, places in groups)
    return [[factors[place] for place in places] for places in ordered]
