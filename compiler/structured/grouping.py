"""Which factors of a product are multiplied once, and which stay apart as parts of an operator.

Two factors become one part where that costs no more than it saves in `PRODUCTS` products with a
vector, and takes no more memory: X X in the derivative of X X X, but not Rᵀ diag(w) R.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.compiler.structured.expand import volume

PRODUCTS = 2
"""How many products with a vector an operator is taken to be made for."""
MOST_EXACT = 7
"""Up to so many parts the best order of a product is found."""


@dataclass(frozen=True)
class Part:
    """Factors that are multiplied once; `labels` stay open."""

    factors: tuple[ir.Factor, ...]
    labels: frozenset[int]


class Grouping:
    """The parts of one product. `given`: the labels of the vector; `asked`: those of the
    result; `fixed`: label sets of parts that are taken as they are (masks)."""

    def __init__(
        self,
        parts: Sequence[Part],
        fixed: Sequence[frozenset[int]],
        given: frozenset[int],
        asked: frozenset[int],
        sizes: Mapping[int, Dimension],
    ) -> None:
        self._parts = list(parts)
        self._fixed = list(fixed)
        self._given = given
        self._asked = asked
        self._sizes = sizes
        self._volumes: dict[frozenset[int], float] = {}

    def parts(self) -> list[Part]:
        """The parts, merged as long as that is worth while."""
        while (best := self._best()) is not None:
            first, second, merged = best
            self._parts = [p for p in self._parts if p is not first and p is not second]
            self._parts.append(merged)
        return self._parts

    def _best(self) -> tuple[Part, Part, Part] | None:
        """The two parts that gain most by being one, and that one; None where none gain."""
        before = self._cost([part.labels for part in self._parts])
        found = None
        gain = 0.0
        for first, second in itertools.combinations(self._parts, 2):
            merged = self._merged(first, second)
            if merged is None:
                continue
            rest = [p.labels for p in self._parts if p is not first and p is not second]
            saved = before - self._cost([*rest, merged.labels])
            better = PRODUCTS * saved - self._volume(first.labels | second.labels)
            if better > gain:
                found, gain = (first, second, merged), better
        return found

    def _merged(self, first: Part, second: Part) -> Part | None:
        """Two parts as one; None where they have nothing in common or it takes more memory."""
        both = first.labels | second.labels
        others = self._given | self._asked
        for part in self._parts:
            if part is not first and part is not second:
                others |= part.labels
        others = others.union(*self._fixed)
        labels = both & others
        if not first.labels & second.labels and not both <= self._given & self._asked:
            return None
        sides = (first.labels, second.labels, self._given, self._asked)
        if self._volume(labels) > max(map(self._volume, sides)):
            return None
        return Part(first.factors + second.factors, labels)

    def _volume(self, labels: frozenset[int]) -> float:
        if labels not in self._volumes:
            self._volumes[labels] = volume(self._sizes[label] for label in labels)
        return self._volumes[labels]

    def _cost(self, parts: list[frozenset[int]]) -> float:
        """The multiplications of one product with a vector, in the best order of the parts."""
        every = [*parts, *self._fixed]
        if len(every) > MOST_EXACT:
            return self._along(every)
        full = (1 << len(every)) - 1
        inside = [frozenset[int]()] * (full + 1)
        for mask in range(1, full + 1):
            last = mask.bit_length() - 1
            inside[mask] = inside[mask ^ (1 << last)] | every[last]
        best = [0.0] + [math.inf] * full
        for mask in range(full):
            current = (self._given | inside[mask]) & (self._asked | inside[full ^ mask])
            for number, labels in enumerate(every):
                if not mask >> number & 1:
                    after = mask | 1 << number
                    cost = best[mask] + self._volume(current | labels)
                    best[after] = min(best[after], cost)
        return best[full]

    def _along(self, order: Sequence[frozenset[int]]) -> float:
        current, cost = self._given, 0.0
        for position, labels in enumerate(order):
            cost += self._volume(current | labels)
            current = (current | labels) & self._asked.union(*order[position + 1 :])
        return cost
