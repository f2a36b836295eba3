"""Canonical labels of a product: equal products get equal labels, whatever they were before.

Colour refinement on the labels, then individualisation where it leaves ties, as in graph
canonisation. Products are small; past a budget of trials the first tie is taken, which keeps
the result right and may leave two equal terms apart.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import islice

from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.compiler.ir.nodes import Factor, Node, labels_of
from derivatrix.compiler.ir.product import components

TRIALS = 64
"""At most so many labellings are tried."""


def canonical_labels(
    factors: Sequence[Factor],
    symmetric: Container[Node],
    ndim: int,
    sizes: Mapping[int, Dimension] | Sequence[Dimension],
) -> list[Factor]:
    """The factors sorted, their summed labels renumbered ndim, ndim + 1, ... canonically.

    Labels below ndim are the output's and stay. symmetric: the nodes that are; the last two labels
    of these are in ascending order.
    """
    search = _Search(factors, symmetric, ndim)
    labels = sorted(labels_of(factors))
    colours = search.refine(
        _ranks(
            {
                label: (0, label, "") if label < ndim else (1, 0, str(sizes[label]))
                for label in labels
            }
        )
    )
    if len(set(colours.values())) < len(colours):
        parts = components(factors, range(ndim))
        if len(parts) > 1:  # alike ones, as in (xᵀ x)⁴, tie in as many ways as they are permuted
            return _joined([canonical_labels(part, symmetric, ndim, sizes) for part in parts], ndim)
    return min(islice(search.labellings(colours), TRIALS), key=_key)


def _joined(parts: list[list[Factor]], ndim: int) -> list[Factor]:
    """Groups of factors, each labelled on its own, as one product."""
    result: list[Factor] = []
    count = 0
    for part in sorted(parts, key=_key):
        own = {label for _, labels in part for label in labels if label >= ndim}
        result += [
            (node, tuple(label + count if label >= ndim else label for label in labels))
            for node, labels in part
        ]
        count += len(own)
    return sorted(result, key=_place)


def _place(factor: Factor) -> tuple[str, tuple[int, ...]]:
    return factor[0].key, factor[1]


def _key(factors: Sequence[Factor]) -> list[tuple[str, tuple[int, ...]]]:
    return [_place(factor) for factor in factors]


class _Search:
    """The canonical labels of one product: those with the least key of all that are tried."""

    def __init__(self, factors: Sequence[Factor], symmetric: Container[Node], ndim: int) -> None:
        self.factors = factors
        self.symmetric = [node in symmetric for node, _ in factors]
        self.ndim = ndim

    def labellings(self, colours: dict[int, int]) -> Iterator[list[Factor]]:
        """The factors with labels numbered by their colours. Where several labels have one colour,
        each of them is tried as the first of these."""
        classes: dict[int, list[int]] = {}
        for label, colour in colours.items():
            classes.setdefault(colour, []).append(label)
        tied = next((classes[c] for c in sorted(classes) if len(classes[c]) > 1), None)
        if tied is None:
            yield self._labelled(colours)
            return
        for label in tied:
            split = {key: 2 * colour + 1 for key, colour in colours.items()}
            split[label] -= 1
            yield from self.labellings(self.refine(split))

    def refine(self, colours: dict[int, int]) -> dict[int, int]:
        """Colours that tell labels apart by the factors they are in and the colours around them,
        refined until that makes no more of them."""
        count = len(set(colours.values()))
        while True:
            seen: dict[int, list] = {label: [] for label in colours}
            for (node, labels), symmetric in zip(self.factors, self.symmetric, strict=True):
                around = [colours[label] for label in labels]
                places = list(range(len(labels)))
                if symmetric:
                    around[-2:] = sorted(around[-2:])
                    places[-1] = places[-2]
                for place, label in zip(places, labels, strict=True):
                    seen[label].append((node.key, tuple(around), place))
            colours = _ranks(
                {label: (colours[label], tuple(sorted(seen[label]))) for label in colours}
            )
            if len(set(colours.values())) == count:
                return colours
            count = len(set(colours.values()))

    def _labelled(self, colours: dict[int, int]) -> list[Factor]:
        """The factors, sorted, where no two labels have one colour."""
        inner = sorted((label for label in colours if label >= self.ndim), key=colours.__getitem__)
        numbers = {label: self.ndim + i for i, label in enumerate(inner)}
        renamed: list[Factor] = []
        for (node, labels), symmetric in zip(self.factors, self.symmetric, strict=True):
            new = [numbers.get(label, label) for label in labels]
            if symmetric:
                new[-2:] = sorted(new[-2:])
            renamed.append((node, tuple(new)))
        return sorted(renamed, key=_place)


def _ranks(values: Mapping[int, tuple]) -> dict[int, int]:
    """For each label the rank of its value among the distinct values."""
    order = {value: rank for rank, value in enumerate(sorted(set(values.values())))}
    return {label: order[value] for label, value in values.items()}
