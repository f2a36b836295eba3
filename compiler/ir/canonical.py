"""Canonical labels of a product: equal products get equal labels, whatever they were before.

Colour refinement on the labels, then individualisation where it leaves ties, as in graph
canonisation (McKay and Piperno, Practical graph isomorphism II, 2014). Products are small; past
MAX_LABELLINGS the least labelling so far is taken, which is valid but may leave two equal terms
apart.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import islice

from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.compiler.ir.nodes import Factor, Node, labels_of
from derivatrix.compiler.ir.product import components

MAX_LABELLINGS = 64
"""Most labellings tried for one product."""


def canonical_labels(
    factors: Sequence[Factor],
    symmetric: Container[Node],
    ndim: int,
    sizes: Mapping[int, Dimension] | Sequence[Dimension],
) -> list[Factor]:
    """Sort the factors, and renumber their summed labels ndim, ndim + 1, ... canonically. Labels
    below ndim are the output's and stay. `symmetric` holds the symmetric nodes, whose last two
    labels are put in ascending order."""
    search = _Search(factors, symmetric, ndim)
    labels = sorted(labels_of(factors))
    kinds = {n: (0, n, "") if n < ndim else (1, 0, str(sizes[n])) for n in labels}
    colours = search.refine(_ranks(kinds))
    if len(set(colours.values())) < len(colours):
        parts = components(factors, range(ndim))
        if len(parts) > 1:  # equal components, as in (xᵀ x)⁴, would tie in k! ways
            return _concatenated(
                [canonical_labels(part, symmetric, ndim, sizes) for part in parts], ndim
            )
    return min(islice(search.labellings(colours), MAX_LABELLINGS), key=_key)


def _concatenated(parts: list[list[Factor]], ndim: int) -> list[Factor]:
    """Join components that are each labelled from ndim on into one product."""
    result: list[Factor] = []
    count = 0
    for part in sorted(parts, key=_key):
        summed = {label for _, labels in part for label in labels if label >= ndim}
        result += [
            (node, tuple(label + count if label >= ndim else label for label in labels))
            for node, labels in part
        ]
        count += len(summed)
    return sorted(result, key=_sort_key)


def _sort_key(factor: Factor) -> tuple[str, tuple[int, ...]]:
    return factor[0].key, factor[1]


def _key(factors: Sequence[Factor]) -> list[tuple[str, tuple[int, ...]]]:
    return [_sort_key(factor) for factor in factors]


class _Search:
    """The search for the labels of one product that have the least key."""

    def __init__(self, factors: Sequence[Factor], symmetric: Container[Node], ndim: int) -> None:
        self.factors = factors
        self.symmetric = [node in symmetric for node, _ in factors]
        self.ndim = ndim

    def labellings(self, colours: dict[int, int]) -> Iterator[list[Factor]]:
        """Yield the factors with labels numbered by colour. Where several labels share a colour,
        each is tried as the first of them."""
        classes: dict[int, list[int]] = {}
        for label, colour in colours.items():
            classes.setdefault(colour, []).append(label)
        tied = next((classes[c] for c in sorted(classes) if len(classes[c]) > 1), None)
        if tied is None:
            yield self._labelled(colours)
            return
        for label in tied:
            individualised = {key: 2 * colour + 1 for key, colour in colours.items()}
            individualised[label] -= 1
            yield from self.labellings(self.refine(individualised))

    def refine(self, colours: dict[int, int]) -> dict[int, int]:
        """Split colours by factors and neighbouring colours until no more arise."""
        count = len(set(colours.values()))
        while True:
            contexts: dict[int, list] = {label: [] for label in colours}
            for (node, labels), symmetric in zip(self.factors, self.symmetric, strict=True):
                neighbours = [colours[label] for label in labels]
                axes = list(range(len(labels)))
                if symmetric:
                    neighbours[-2:] = sorted(neighbours[-2:])
                    axes[-1] = axes[-2]
                for axis, label in zip(axes, labels, strict=True):
                    contexts[label].append((node.key, tuple(neighbours), axis))
            colours = _ranks(
                {label: (colours[label], tuple(sorted(contexts[label]))) for label in colours}
            )
            if len(set(colours.values())) == count:
                return colours
            count = len(set(colours.values()))

    def _labelled(self, colours: dict[int, int]) -> list[Factor]:
        """Return the factors, sorted and relabelled, where all colours differ."""
        inner = sorted((label for label in colours if label >= self.ndim), key=colours.__getitem__)
        numbers = {label: self.ndim + i for i, label in enumerate(inner)}
        renamed: list[Factor] = []
        for (node, labels), symmetric in zip(self.factors, self.symmetric, strict=True):
            new = [numbers.get(label, label) for label in labels]
            if symmetric:
                new[-2:] = sorted(new[-2:])
            renamed.append((node, tuple(new)))
        return sorted(renamed, key=_sort_key)


def _ranks(values: Mapping[int, tuple]) -> dict[int, int]:
    """Map each label to the rank of its value among the distinct values."""
    order = {value: rank for rank, value in enumerate(sorted(set(values.values())))}
    return {label: order[value] for label, value in values.items()}
