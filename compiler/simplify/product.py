"""A product being simplified: coefficient, labelled factors, output labels, sizes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import sympy

from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.compiler.ir.nodes import Einsum, Factor, Node, Structural

_fresh = itertools.count(10**6)


@dataclass(frozen=True)
class Product:
    """The parts of an `Einsum` with free integer labels; `output` need not be 0, 1, ..."""

    coefficient: sympy.Expr
    factors: tuple[Factor, ...]
    output: tuple[int, ...]
    sizes: Mapping[int, Dimension]

    @staticmethod
    def of(node: Einsum) -> Product:
        """The product that `node` is."""
        sizes = dict(enumerate(node.sizes))
        return Product(node.coefficient, node.factors, tuple(range(node.ndim)), sizes)

    @property
    def shape(self) -> tuple[Dimension, ...]:
        return tuple(self.sizes[label] for label in self.output)

    def private(self, label: int, mentions: int) -> bool:
        """Whether `label` is summed and mentioned just that often."""
        found = sum(own.count(label) for _, own in self.factors)
        return label not in self.output and found == mentions

    def without(self, *positions: int, summed: int | None = None) -> Product:
        """The product with the factors at `positions` left out, and with them the sum over
        the label `summed`."""
        kept = tuple(f for i, f in enumerate(self.factors) if i not in positions)
        sizes = {label: size for label, size in self.sizes.items() if label != summed}
        return replace(self, factors=kept, sizes=sizes)

    def times(self, *factors: Factor) -> Product:
        """The product with further factors."""
        sizes = dict(self.sizes)
        for node, labels in factors:
            sizes.update(zip(labels, node.shape, strict=True))
        return replace(self, factors=self.factors + factors, sizes=sizes)

    def renamed(self, old: int, new: int) -> Product:
        """The product with the summed label `old` called `new`."""
        factors = tuple(
            (node, tuple(new if label == old else label for label in labels))
            for node, labels in self.factors
        )
        sizes = {label: size for label, size in self.sizes.items() if label != old}
        return replace(self, factors=factors, sizes=sizes)

    def with_factor(self, position: int, node: Node) -> Product:
        """The product with another node as the factor at a position."""
        factors = list(self.factors)
        factors[position] = (node, factors[position][1])
        return replace(self, factors=tuple(factors))

    @staticmethod
    def fresh() -> int:
        """A label that no product has."""
        return next(_fresh)

    def scaled(self, factor: sympy.Expr) -> Product:
        """The product times a number."""
        return replace(self, coefficient=self.coefficient * factor)

    def inlined(self, position: int) -> Product:
        """The product with the `Einsum` at `position` spliced in."""
        node, labels = self.factors[position]
        assert isinstance(node, Einsum)
        names = dict(enumerate(labels))
        sizes = dict(self.sizes)
        for label in node.contracted:
            names[label] = self.fresh()
            sizes[names[label]] = node.sizes[label]
        spliced = tuple(
            (factor, tuple(names[label] for label in own)) for factor, own in node.factors
        )
        factors = self.factors[:position] + spliced + self.factors[position + 1 :]
        return Product(self.coefficient * node.coefficient, factors, self.output, sizes)


def is_trivial(node: Node) -> bool:
    """Whether an `Einsum` only scales, moves, repeats or selects entries of one array."""
    if not isinstance(node, Einsum):
        return False
    arrays = [labels for factor, labels in node.factors if not isinstance(factor, Structural)]
    if len(arrays) > 1:
        return False
    selected = {
        label
        for factor, labels in node.factors
        if isinstance(factor, Structural)
        for label in labels
    }
    return all(label in selected or label < node.ndim for label in range(len(node.sizes)))
