"""Groups of the factors of an operator: a group is one array, multiplied once, when the operator is
made.

Two factors become one part if that costs no more than it saves in `EXPECTED_PRODUCTS` products with
a vector, and takes no more memory: X X in the derivative of X X X, but not Rᵀ diag(w) R.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.compiler.structured.expand import volume

EXPECTED_PRODUCTS = 2
"""Products with a vector for which an operator is assumed to be made."""
MAX_EXACT_PARTS = 7
"""Most parts for which the best contraction order is searched: 2ᵏ subsets of k parts."""


@dataclass(frozen=True)
class Part:
    """Factors that are multiplied once, and the labels of their product."""

    factors: tuple[ir.Factor, ...]
    labels: frozenset[int]


class Grouping:
    """The parts of one product. `masks`: the labels of each mask, which remains alone; `inputs`,
    `outputs`: the labels of the argument and of the result; `sizes`: of all labels."""

    def __init__(
        self,
        parts: Sequence[Part],
        masks: Sequence[frozenset[int]],
        inputs: frozenset[int],
        outputs: frozenset[int],
        sizes: Mapping[int, Dimension],
    ) -> None:
        self._parts = list(parts)
        self._masks = list(masks)
        self._inputs = inputs
        self._outputs = outputs
        self._sizes = sizes
        self._volumes: dict[frozenset[int], float] = {}

    def parts(self) -> list[Part]:
        """Merge parts as long as that pays."""
        while (best := self._best_merge()) is not None:
            left, right, merged = best
            self._parts = [*self._other_parts(left, right), merged]
        return self._parts

    def _other_parts(self, left: Part, right: Part) -> list[Part]:
        return [part for part in self._parts if part is not left and part is not right]

    def _best_merge(self) -> tuple[Part, Part, Part] | None:
        """Find the two parts that gain most by being merged, and their product; None if no parts
        gain."""
        cost = self._cost([part.labels for part in self._parts])
        best = None
        best_gain = 0.0
        for left, right in itertools.combinations(self._parts, 2):
            merged = self._merged(left, right)
            if merged is None:
                continue
            parts = [*self._other_parts(left, right), merged]
            saving = cost - self._cost([part.labels for part in parts])
            gain = EXPECTED_PRODUCTS * saving - self._volume(left.labels | right.labels)
            if gain > best_gain:
                best, best_gain = (left, right, merged), gain
        return best

    def _merged(self, left: Part, right: Part) -> Part | None:
        """Merge two parts; None if they have no label in common, or the product is larger."""
        union = left.labels | right.labels
        labels_of_others = [part.labels for part in self._other_parts(left, right)]
        labels = union & self._inputs.union(self._outputs, *labels_of_others, *self._masks)
        if not left.labels & right.labels and not union <= self._inputs & self._outputs:
            return None
        sides = (left.labels, right.labels, self._inputs, self._outputs)
        if self._volume(labels) > max(map(self._volume, sides)):
            return None
        return Part(left.factors + right.factors, labels)

    def _volume(self, labels: frozenset[int]) -> float:
        if labels not in self._volumes:
            self._volumes[labels] = volume(self._sizes[label] for label in labels)
        return self._volumes[labels]

    def _cost(self, parts: list[frozenset[int]]) -> float:
        """Count the multiplications of one product with a vector, in the best order of the parts:
        dynamic programming over subsets of parts, which are bit masks."""
        factors = [*parts, *self._masks]
        if len(factors) > MAX_EXACT_PARTS:
            return self._cost_in_order(factors)
        full = (1 << len(factors)) - 1
        subset_labels = [frozenset[int]()] * (full + 1)
        for subset in range(1, full + 1):
            highest = subset.bit_length() - 1
            subset_labels[subset] = subset_labels[subset ^ (1 << highest)] | factors[highest]
        best = [0.0] + [math.inf] * full
        for subset in range(full):
            needed_labels = self._outputs | subset_labels[full ^ subset]
            current = (self._inputs | subset_labels[subset]) & needed_labels
            for number, labels in enumerate(factors):
                if not subset >> number & 1:
                    larger = subset | 1 << number
                    cost = best[subset] + self._volume(current | labels)
                    best[larger] = min(best[larger], cost)
        return best[full]

    def _cost_in_order(self, order: Sequence[frozenset[int]]) -> float:
        """Count the multiplications of one product with a vector in the order of the factors."""
        current, cost = self._inputs, 0.0
        for position, labels in enumerate(order):
            cost += self._volume(current | labels)
            current = (current | labels) & self._outputs.union(*order[position + 1 :])
        return cost
