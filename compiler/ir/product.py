"""Products as values that rules rewrite: coefficient, labelled factors, output labels, sizes."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Dimension, Shape


@dataclass(frozen=True)
class Product:
    """The parts of an `Einsum` with arbitrary integer labels. `output` need not be 0, 1, ..., and
    may repeat a label: entries off that diagonal are zero."""

    coefficient: sympy.Expr
    factors: tuple[ir.Factor, ...]
    output: ir.Labels
    sizes: Mapping[int, Dimension]

    @staticmethod
    def of(node: ir.Einsum) -> Product:
        """Return the product that `node` is."""
        sizes = dict(enumerate(node.sizes))
        return Product(node.coefficient, node.factors, tuple(range(node.ndim)), sizes)

    @staticmethod
    def reduced(node: ir.Einsum) -> Product:
        """Return the product that `node` is, without deltas that only rename labels."""
        return Product.of(node).without_deltas(range(node.ndim)).counted()

    @staticmethod
    def of_factor(node: ir.Node) -> Product:
        """Return the product with `node` as its only factor."""
        axes = tuple(range(node.ndim))
        return Product(sympy.S.One, ((node, axes),), axes, dict(enumerate(node.shape)))

    @property
    def node(self) -> ir.Einsum:
        """The product as a node; no label may occur twice in its output."""
        return ir.einsum(self.factors, self.output, self.coefficient, self.sizes)

    @property
    def shape(self) -> Shape:
        return tuple(self.sizes[label] for label in self.output)

    @property
    def summed(self) -> list[int]:
        """The labels of factors that are summed over, in the order met."""
        return [label for label in ir.labels_of(self.factors) if label not in self.output]

    def is_private(self, label: int, count: int) -> bool:
        """Return whether `label` is summed over and occurs in the factors exactly `count` times: a
        rule that replaces the factors with these occurrences may then drop the label."""
        occurrences = sum(labels.count(label) for _, labels in self.factors)
        return label not in self.output and occurrences == count

    def fresh(self, count: int) -> ir.Labels:
        """Return `count` labels that the product does not have."""
        start = max(self.sizes, default=-1) + 1
        return tuple(range(start, start + count))

    def scaled(self, factor: sympy.Expr) -> Product:
        """Multiply by a number."""
        return replace(self, coefficient=self.coefficient * factor)

    def times(self, *factors: ir.Factor) -> Product:
        """Multiply by further factors."""
        sizes = dict(self.sizes)
        for node, labels in factors:
            sizes.update(zip(labels, node.shape, strict=True))
        return replace(self, factors=self.factors + factors, sizes=sizes)

    def without(self, *positions: int, summed: int | None = None) -> Product:
        """Leave out the factors at `positions`, and with them the sum over the label `summed`."""
        factors = tuple(f for i, f in enumerate(self.factors) if i not in positions)
        sizes = {label: size for label, size in self.sizes.items() if label != summed}
        return replace(self, factors=factors, sizes=sizes)

    def with_factor(self, position: int, node: ir.Node) -> Product:
        """Replace the node of the factor at a position."""
        factors = list(self.factors)
        factors[position] = (node, factors[position][1])
        return replace(self, factors=tuple(factors))

    def renamed(self, old: int, new: int) -> Product:
        """Rename the label `old` of factors to `new`."""
        names = {**{label: label for label in self.sizes}, old: new}
        sizes = {label: size for label, size in self.sizes.items() if label != old}
        return replace(self, factors=ir.relabelled(self.factors, names), sizes=sizes)

    def without_deltas(self, apart: Container[int] = ()) -> Product:
        """Merge labels that deltas make equal into the least of them, and drop these deltas. Of the
        labels `apart`, which are less than all others, none replaces another."""
        names = {label: label for label in self.sizes}
        factors: list[ir.Factor] = []
        for node, labels in self.factors:
            if isinstance(node, ir.Delta):
                low, high = sorted(names[label] for label in labels)
                if low == high or high not in apart:
                    names = {label: low if name == high else name for label, name in names.items()}
                    continue
            factors.append((node, labels))
        return Product(
            self.coefficient,
            ir.relabelled(factors, names),
            tuple(names[label] for label in self.output),
            {label: size for label, size in self.sizes.items() if names[label] == label},
        )

    def counted(self) -> Product:
        """Multiply by the sizes of summed labels that no factor has, and drop these labels."""
        present = {*self.output, *ir.labels_of(self.factors)}
        if len(present) == len(self.sizes):
            return self
        counts = [size for label, size in self.sizes.items() if label not in present]
        sizes = {label: size for label, size in self.sizes.items() if label in present}
        return replace(self, coefficient=sympy.prod([self.coefficient, *counts]), sizes=sizes)

    def inlined(self, position: int) -> Product:
        """Splice in the factors of the `Einsum` at `position`."""
        node, labels = self.factors[position]
        assert isinstance(node, ir.Einsum)
        names = labels + self.fresh(len(node.contracted))
        spliced = ir.relabelled(node.factors, names)
        return Product(
            self.coefficient * node.coefficient,
            self.factors[:position] + spliced + self.factors[position + 1 :],
            self.output,
            {**self.sizes, **dict(zip(names, node.sizes, strict=True))},
        )

    def multiplied_out(self, position: int, node: ir.Einsum | ir.Sum) -> list[Product]:
        """Multiply out with the product or sum `node` as the factor at a position: one product, or
        one for each term. The factors of `node` come first."""
        cofactor = self.without(position)
        factors = ((node, self.factors[position][1]), *cofactor.factors)
        product = replace(cofactor, factors=factors)
        if isinstance(node, ir.Sum):
            return [product.with_factor(0, term) for term in node.terms]
        return [product.inlined(0)]

    def rewritten(self, rewrite: Callable[[Product, int], list[Product] | None]) -> list[Product]:
        """Rewrite the product as a sum of products, and these in turn, in order, until `rewrite`,
        called with a product and the number of all others, returns None for each."""
        pending, terms = [self], list[Product]()
        while pending:
            product = pending.pop()
            products = rewrite(product, len(pending) + len(terms))
            if products is None:
                terms.append(product)
            else:
                pending += reversed(products)
        return terms


Labelled = TypeVar("Labelled", bound=tuple[Any, ir.Labels])


def components(factors: Sequence[Labelled], apart: Container[int]) -> list[list[Labelled]]:
    """Group the factors linked by labels that are not in `apart`, in their order."""
    groups: list[tuple[set[int], list[int]]] = []
    for position, (_, labels) in enumerate(factors):
        linking = {label for label in labels if label not in apart}
        linked = [group for group in groups if linking & group[0]]
        groups = [group for group in groups if not linking & group[0]]
        positions = [i for _, members in linked for i in members]
        groups.append((linking.union(*(labels for labels, _ in linked)), [*positions, position]))
    ordered = sorted(sorted(members) for _, members in groups)
    return [[factors[i] for i in members] for members in ordered]
