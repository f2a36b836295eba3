"""Where a product is part of another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from derivatrix.compiler.ir.nodes import Einsum, Labels, Node
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.structure import facts

Place = tuple[tuple[int, ...], Labels, Labels]
"""Where a node stands in a product: the positions of its factors, the labels of its axes, and those
that these factors are summed over."""


def places(product: Product, node: Node) -> Iterator[Place]:
    """Where a node stands in a product, as one factor or as the factors that it consists of."""
    for position, (factor, labels) in enumerate(product.factors):
        if factor is node:
            yield (position,), labels, ()
    if isinstance(node, Einsum):
        yield from factor_places(product, node, {})


def factor_places(
    product: Product, part: Einsum, names: Mapping[int, int], positions: tuple[int, ...] = ()
) -> Iterator[Place]:
    """Where the factors of `part`, from the first one after `positions` on, stand in a product.

    names: labels of `part` -> the labels of `product` that they are known to be. Factors that
    `part` is summed over have those labels alone.
    """
    if len(positions) == len(part.factors):
        mentions = Counter(label for _, labels in part.factors for label in labels)
        if len(names) == len(part.sizes) == len({*names.values()}):
            hidden = tuple(names[label] for label in part.contracted)
            if all(product.private(names[c], mentions[c]) for c in part.contracted):
                yield positions, tuple(names[axis] for axis in range(part.ndim)), hidden
        return
    factor, labels = part.factors[len(positions)]
    for position, (node, others) in enumerate(product.factors):
        if node is not factor or position in positions:
            continue
        for arrangement in _arrangements(node, others):
            extended = dict(names)
            pairs = zip(labels, arrangement, strict=True)
            if all(extended.setdefault(label, other) == other for label, other in pairs):
                yield from factor_places(product, part, extended, (*positions, position))


def _arrangements(node: Node, labels: Labels) -> Iterator[Labels]:
    """The labels of a factor, either way for a symmetric matrix."""
    yield labels
    if "symmetric" in facts(node):
        yield (*labels[:-2], labels[-1], labels[-2])
