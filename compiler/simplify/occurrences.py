"""Occurrences of a product in another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from derivatrix.compiler.ir.nodes import Einsum, Labels, Node
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.structure import facts

Occurrence = tuple[tuple[int, ...], Labels, Labels]
"""A node in a product: the positions of its factors, the labels of its axes, and the labels that
these factors are summed over."""


def occurrences(product: Product, node: Node) -> Iterator[Occurrence]:
    """Yield the occurrences of a node in a product, as one factor or as its factors."""
    for position, (factor, labels) in enumerate(product.factors):
        if factor is node:
            yield (position,), labels, ()
    if isinstance(node, Einsum):
        yield from factor_occurrences(product, node, {})


def factor_occurrences(
    product: Product, part: Einsum, names: Mapping[int, int], positions: tuple[int, ...] = ()
) -> Iterator[Occurrence]:
    """Yield the occurrences of `part` in a product, given the positions of its first factors.

    names: labels of `part` -> the labels of `product` that they stand for so far

    No other factors may have the labels that `part` is summed over.
    """
    if len(positions) == len(part.factors):
        mentions = Counter(label for _, labels in part.factors for label in labels)
        if len(names) == len(part.sizes) == len({*names.values()}):
            hidden = tuple(names[label] for label in part.contracted)
            if all(product.is_private(names[c], mentions[c]) for c in part.contracted):
                yield positions, tuple(names[axis] for axis in range(part.ndim)), hidden
        return
    factor, labels = part.factors[len(positions)]
    for position, (node, axes) in enumerate(product.factors):
        if node is not factor or position in positions:
            continue
        for arrangement in _arrangements(node, axes):
            extended = dict(names)
            pairs = zip(labels, arrangement, strict=True)
            if all(extended.setdefault(label, target) == target for label, target in pairs):
                yield from factor_occurrences(product, part, extended, (*positions, position))


def _arrangements(node: Node, labels: Labels) -> Iterator[Labels]:
    """Yield the labels of a factor, both ways for a symmetric matrix."""
    yield labels
    if "symmetric" in facts(node):
        yield (*labels[:-2], labels[-1], labels[-2])
