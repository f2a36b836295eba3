"""Canonical labels of a product: equal products get equal labels, whatever they were before.

Colour refinement on the labels, then individualisation where it leaves ties, as in graph
canonisation. Products are small; past a budget of trials the first tie is taken, which keeps
the result right and may leave two equal terms apart.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.nodes import Factor

TRIALS = 64


def canonical_labels(
    factors: Sequence[Factor], symmetric: Sequence[bool], ndim: int, sizes: Shape
) -> list[Factor]:
    """The factors sorted, their summed labels renumbered ndim, ndim + 1, ... canonically.

    Labels below ndim are the output's and stay. The last two labels of a factor that is `symmetric`
    are in ascending order.
    """
    labels = sorted({label for _, own in factors for label in own})
    start: dict[int, Hashable] = {
        label: (0, label, "") if label < ndim else (1, 0, str(sizes[label])) for label in labels
    }
    search = _Search(factors, symmetric, ndim)
    search.explore(_ranks(start))
    assert search.best is not None
    return search.best


class _Search:
    def __init__(self, factors: Sequence[Factor], symmetric: Sequence[bool], ndim: int) -> None:
        self.factors = factors
        self.symmetric = symmetric
        self.ndim = ndim
        self.best: list[Factor] | None = None
        self.best_key: list[tuple[str, tuple[int, ...]]] | None = None
        self.trials = 0

    def explore(self, colours: dict[int, int]) -> None:
        """Refine, then try each member of the first class of equal labels as its first."""
        colours = self._refine(colours)
        classes: dict[int, list[int]] = {}
        for label, colour in colours.items():
            classes.setdefault(colour, []).append(label)
        tied = next((classes[c] for c in sorted(classes) if len(classes[c]) > 1), None)
        if tied is None:
            self._offer(colours)
            return
        for label in tied:
            split = {key: 2 * colour + 1 for key, colour in colours.items()}
            split[label] -= 1
            self.explore(split)
            if self.trials >= TRIALS:
                return

    def _refine(self, colours: dict[int, int]) -> dict[int, int]:
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
            colours = _ranks({label: (colours[label], sorted(seen[label])) for label in colours})
            if len(set(colours.values())) == count:
                return colours
            count = len(set(colours.values()))

    def _offer(self, colours: dict[int, int]) -> None:
        self.trials += 1
        inner = sorted((label for label in colours if label >= self.ndim), key=colours.__getitem__)
        numbers = {label: self.ndim + i for i, label in enumerate(inner)}
        renamed: list[Factor] = []
        for (node, labels), symmetric in zip(self.factors, self.symmetric, strict=True):
            new = [numbers.get(label, label) for label in labels]
            if symmetric:
                new[-2:] = sorted(new[-2:])
            renamed.append((node, tuple(new)))
        renamed.sort(key=lambda factor: (factor[0].key, factor[1]))
        key = [(node.key, labels) for node, labels in renamed]
        if self.best_key is None or key < self.best_key:
            self.best, self.best_key = renamed, key


def _ranks(values: dict[int, Hashable] | dict[int, tuple]) -> dict[int, int]:
    """Each value's rank among the distinct ones."""
    order = {value: rank for rank, value in enumerate(sorted(set(map(_frozen, values.values()))))}
    return {label: order[_frozen(value)] for label, value in values.items()}


def _frozen(value: object) -> tuple:
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(part) if isinstance(part, (list, tuple)) else part for part in value)
    return (value,)
