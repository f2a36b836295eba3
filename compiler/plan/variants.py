"""Several orders of multiplication, where the best one depends on sizes that are not known yet.

Such kernels compare the costs of their variants, polynomials of the sizes, when they are called.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.plan.contraction import pairwise
from derivatrix.compiler.plan.contraction_order import Numbers
from derivatrix.compiler.plan.nominal_sizes import nominal
from derivatrix.compiler.plan.sums_of_contractions import joined, work

SMALL, LARGE = sympy.Integer(10), sympy.Integer(1000)
"""Numbers assumed for sizes, in all combinations, to find the variants."""
MAX_COMBINED_SIZES = 4
"""Most sizes varied in all combinations; of more, one at a time is small or large."""
GAIN = 2.0
"""Ratio of costs by which a variant must beat the others at some combination of sizes."""
MAX_VARIANTS = 3
"""Most contraction orders, and so variants, that a kernel has."""
MAX_TERMS = 80
"""Most cost terms of a kernel with several orders, which take long to derive and compile."""


@dataclass(frozen=True)
class Variant:
    """One order of multiplication: the nodes computed, what is known of the matrices within, and
    the cost: multiplications and additions, and the writing of results."""

    nodes: tuple[ir.Node, ...]
    facts: dict[ir.Node, frozenset[str]]

    @cached_property
    def terms(self) -> list[tuple[int, sympy.Expr]]:
        """The cost as (weight, product of sizes)."""
        found = []
        for node in ir.topological(self.nodes):
            if isinstance(node, ir.Einsum) and len(node.factors) > 1:
                found += work(node)
        return found

    def cost(self, numbers: Numbers) -> float:
        return sum(weight * numbers(size) for weight, size in self.terms)

    @property
    def polynomial(self) -> sympy.Expr:
        return sympy.expand(sympy.Add(*(weight * size for weight, size in self.terms)))


def variants(roots: Sequence[ir.Node]) -> list[Variant]:
    """The orders worth having, that for usual sizes first."""
    chosen = [_variant(roots, nominal)]
    sizes = _sizes(roots)
    if len(sizes) < 2 or not 0 < len(chosen[0].terms) <= MAX_TERMS:
        return chosen
    assumed = [_numbers(values) for values in _combinations(sizes)]
    candidates = {candidate.nodes: candidate for candidate in (_variant(roots, n) for n in assumed)}
    while len(chosen) < MAX_VARIANTS:
        gains = [
            (min(own.cost(numbers) for own in chosen) / candidate.cost(numbers), candidate)
            for numbers in assumed
            for candidate in candidates.values()
        ]
        gain, best = max(gains, key=lambda found: found[0])
        if gain < GAIN:
            break
        chosen.append(best)
    return chosen


def _variant(roots: Sequence[ir.Node], numbers: Numbers) -> Variant:
    nodes, facts = pairwise(roots, numbers)
    new = joined(nodes, numbers)
    known = {new.get(node, node): found for node, found in facts.items()}
    return Variant(tuple(new[node] for node in nodes), known)


def _sizes(roots: Sequence[ir.Node]) -> list[sympy.Symbol]:
    """The sizes of the axes that products run over."""
    found = {
        symbol
        for node in ir.topological(roots)
        if isinstance(node, ir.Einsum) and len(node.factors) > 1
        for size in node.sizes
        for symbol in size.free_symbols
    }
    return sorted(found, key=str)


def _combinations(
    sizes: Sequence[sympy.Symbol],
) -> Iterator[tuple[tuple[sympy.Symbol, sympy.Integer], ...]]:
    if len(sizes) <= MAX_COMBINED_SIZES:
        for values in itertools.product((SMALL, LARGE), repeat=len(sizes)):
            yield tuple(zip(sizes, values, strict=True))
        return
    for size, value in itertools.product(sizes, (SMALL, LARGE)):
        yield ((size, value),)


@cache
def _numbers(values: tuple[tuple[sympy.Symbol, sympy.Integer], ...]) -> Numbers:
    return cache(lambda size: nominal(size.xreplace(dict(values))))
