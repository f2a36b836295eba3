"""The order in which the factors of one product are multiplied, two at a time.

The fewest operations, by dynamic programming over the subsets of the factors; greedy for many.
Partial products have canonical labels, so that those of different products are found to be equal.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.structure import facts

MAX_EXACT_FACTORS = 8
"""Most factors for which the best order is found: the search takes 3ⁿ steps."""
MAX_PERMUTED = 4
"""Most equal factors that are tried in all orders, and symmetric ones in both orientations."""

Numbers = Callable[[sympy.Expr], float]
"""A function from a symbolic size to the number assumed for it."""


class ContractionOrder:
    """The best order to multiply factors in that contracted labels connect. A subset of the
    factors is a bit mask.

    uncontracted: labels that are not contracted; shared: partial product -> how many terms of the
    kernel have it; built: partial product -> its pairwise form, for all products of a kernel."""

    def __init__(
        self,
        factors: Sequence[ir.Factor],
        uncontracted: set[int],
        sizes: Shape,
        shared: Counter[ir.Node],
        built: dict[ir.Node, ir.Node],
        numbers: Numbers,
    ) -> None:
        self._number_of = numbers
        self._built = built
        self.factors = sorted(factors, key=lambda factor: (factor[0].key, factor[1]))
        self.full = (1 << len(self.factors)) - 1
        self._uncontracted = uncontracted
        self._sizes = [numbers(size) for size in sizes]
        self._shared = shared
        self._triangles = any(facts(node) & {"lower", "upper"} for node, _ in self.factors)
        self._remaining: dict[int, set[int]] = {}
        self._canonical: dict[int, tuple[ir.Einsum, ir.Labels]] = {}
        self._best: dict[int, tuple[float, int]] = {}
        if len(self.factors) <= MAX_EXACT_FACTORS:
            self._search()
        else:
            self._greedy()

    def candidates(self) -> list[ir.Node]:
        """List every connected partial product once."""
        masks = (mask for mask in self._best if mask.bit_count() > 1)
        products = (self.canonical(mask)[0] for mask in masks if self._connected(mask))
        return list(dict.fromkeys(products))

    def top(self) -> tuple[ir.Factor, ir.Factor]:
        """Return the two operands of the last multiplication."""
        part = self._best[self.full][1]
        return self.product(part), self.product(self.full ^ part)

    def product(self, mask: int) -> ir.Factor:
        """Return the partial product of a subset, with its labels."""
        if mask.bit_count() == 1:
            return self.factors[mask.bit_length() - 1]
        node, labels = self.canonical(mask)
        if mask.bit_count() == 2:
            return node, labels
        if len(self.factors) > MAX_EXACT_FACTORS:
            part = self._best[mask][1]
            return ir.einsum([self.product(part), self.product(mask ^ part)], labels), labels
        if node not in self._built:
            output = range(node.ndim)
            group = ContractionOrder(
                node.factors, set(output), node.sizes, self._shared, self._built, self._number_of
            )
            self._built[node] = ir.einsum(group.top(), output)
        return self._built[node], labels

    def canonical(self, mask: int) -> tuple[ir.Einsum, ir.Labels]:
        """Return the product of a subset in a canonical form, and its output labels. Equal products
        have equal forms, whatever their labels were."""
        if mask not in self._canonical:
            members = [f for n, f in enumerate(self.factors) if mask >> n & 1]
            labels = self._labels(mask)
            best = min(_orders(members), key=lambda order: _pattern(order, labels))
            output = tuple(label for label in ir.labels_of(best) if label in labels)
            self._canonical[mask] = (ir.einsum(best, output), output)
        return self._canonical[mask]

    def _labels(self, mask: int) -> set[int]:
        """Return the labels of the product of a subset."""
        if mask not in self._remaining:
            outside = self._uncontracted | self._union(self.full ^ mask)
            self._remaining[mask] = self._union(mask) & outside
        return self._remaining[mask]

    def _union(self, mask: int) -> set[int]:
        return {*ir.labels_of(f for n, f in enumerate(self.factors) if mask >> n & 1)}

    def _connected(self, mask: int) -> bool:
        """Return whether contracted labels connect all factors of the subset `mask`."""
        summed = self._union(mask) - self._labels(mask)
        pending = [n for n in range(len(self.factors)) if mask >> n & 1]
        reached = set(self.factors[pending.pop()][1]) & summed
        while pending:
            linked = [n for n in pending if reached.intersection(self.factors[n][1])]
            if not linked:
                return False
            pending = [n for n in pending if n not in linked]
            reached |= {label for n in linked for label in self.factors[n][1]} & summed
        return True

    def _search(self) -> None:
        """Find the best order of every subset from the best orders of its parts."""
        for mask in range(1, self.full + 1):
            if mask.bit_count() == 1:
                self._best[mask] = (0.0, 0)
                continue
            lowest = mask & -mask
            options = []
            part = mask
            while part:
                part = (part - 1) & mask
                if part & lowest:
                    cost = self._best[part][0] + self._best[mask ^ part][0]
                    options.append((cost + self._cost(part, mask ^ part), part))
            cost, part = min(options)
            shared = self._shared and self._connected(mask)
            uses = self._shared[self.canonical(mask)[0]] if shared else 1
            self._best[mask] = (cost / max(uses, 1), part)

    def _greedy(self) -> None:
        """Multiply the cheapest pair first, or the pair whose product has the fewest entries more
        than its factors: whichever order needs fewer operations. With both to choose from, the
        Hessian of five layers of a network takes a third of its former time."""
        ways = [self._steps(choice) for choice in (self._cost, self._growth)]
        steps = min(ways, key=lambda steps: sum(self._cost(*pair) for pair in steps))
        self._best = {1 << n: (0.0, 0) for n in range(len(self.factors))}
        self._best |= {left | right: (0.0, left) for left, right in steps}

    def _steps(self, choice: Callable[[int, int], float]) -> list[tuple[int, int]]:
        """List the pairs in the order of multiplication, the least by `choice` first."""
        parts = [1 << n for n in range(len(self.factors))]
        steps = []
        while len(parts) > 1:
            pairs = list(itertools.combinations(parts, 2))
            linked = [p for p in pairs if self._union(p[0]) & self._union(p[1])] or pairs
            left, right = min(linked, key=lambda pair: (choice(*pair), pair))
            steps.append((left, right))
            parts = [part for part in parts if part not in (left, right)] + [left | right]
        return steps

    def _growth(self, left: int, right: int) -> float:
        """Count the entries of the product minus the entries of its two factors."""
        return self._entry_count(left | right) - self._entry_count(left) - self._entry_count(right)

    def _entry_count(self, mask: int) -> float:
        """Count the entries of the product of a subset."""
        return math.prod([self._sizes[label] for label in self._labels(mask)])

    def _cost(self, left: int, right: int) -> float:
        """Count the operations of a pairwise product, with those of inverses; writing an entry of
        the result counts as 4."""
        labels = self._labels(left) | self._labels(right)
        flops = 2 * math.prod([self._sizes[label] for label in labels])
        flops /= 1 + sum(map(self._triangular, (left, right, left | right)))
        writing = 4 * self._entry_count(left | right)
        return flops + writing + self._inversion(left, right) + self._inversion(right, left)

    def _triangular(self, mask: int) -> bool:
        """Return whether the product of `mask` is known triangular, so that zeros are skipped."""
        if not self._triangles:
            return False
        single = mask.bit_count() == 1
        node = self.factors[mask.bit_length() - 1][0] if single else self.canonical(mask)[0]
        return bool(facts(node) & {"lower", "upper"})

    def _inversion(self, mask: int, other_mask: int) -> float:
        """Count the operations of inverting the factor `mask`; none if it is no inverse, or if the
        product with `other_mask` solves equations instead."""
        if mask.bit_count() > 1:
            return 0.0
        node, labels = self.factors[mask.bit_length() - 1]
        if not is_inverse(node):
            return 0.0
        size = self._number_of(node.shape[-1])
        product = self._labels(mask | other_mask)
        solved = [label for label in labels[-2:] if label not in product]
        if len(solved) == 1 and labels[-1] != labels[-2]:
            return 0.0
        return 2 * size**3


def is_inverse(node: ir.Node) -> bool:
    return isinstance(node, ir.Apply) and node.operation.is_inverse


def _orders(members: list[ir.Factor]) -> Iterable[list[ir.Factor]]:
    """Yield the factors sorted by node, equal ones in every order, the axes of symmetric ones in
    both orders."""
    groups = [list(group) for _, group in itertools.groupby(members, key=lambda f: f[0].key)]
    choices = [
        list(itertools.permutations(group)) if len(group) <= MAX_PERMUTED else [tuple(group)]
        for group in groups
    ]
    for permutation in itertools.product(*choices):
        order = [factor for group in permutation for factor in group]
        yield order
        flipped = [_flipped(factor) for factor in order]
        pairs = enumerate(zip(order, flipped, strict=True))
        symmetric = [position for position, (factor, mirrored) in pairs if factor != mirrored]
        for positions in _subsets(symmetric[:MAX_PERMUTED]):
            yield [
                flipped[position] if position in positions else factor
                for position, factor in enumerate(order)
            ]


def _flipped(factor: ir.Factor) -> ir.Factor:
    """Exchange the last two labels of a symmetric factor."""
    node, labels = factor
    if "symmetric" not in facts(node):
        return factor
    return node, (*labels[:-2], labels[-1], labels[-2])


def _subsets(items: list[int]) -> Iterable[tuple[int, ...]]:
    """Yield all subsets but the empty one."""
    for size in range(1, len(items) + 1):
        yield from itertools.combinations(items, size)


def _pattern(order: list[ir.Factor], output: set[int]) -> list[tuple[int, ...]]:
    """Number the labels by first occurrence, each with 1 if it is an output label, else 0."""
    numbers: dict[int, int] = {}
    pattern = []
    for _, labels in order:
        row = []
        for label in labels:
            numbers.setdefault(label, len(numbers))
            row += [numbers[label], int(label in output)]
        pattern.append(tuple(row))
    return pattern
