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
from derivatrix.compiler.plan.sums_of_contractions import join_contractions, work

ASSUMED_SIZES = sympy.Integer(10), sympy.Integer(1000)
"""Numbers assumed for sizes, in all combinations, to find the variants."""
MAX_COMBINED_SIZES = 4
"""Most sizes varied in all combinations; of more, one at a time is small or large."""
MIN_COST_RATIO = 2.0
"""Smallest ratio by which a further variant must be cheaper than the others at some combination of
sizes: each variant is a kernel to compile."""
MAX_VARIANTS = 3
"""Most contraction orders, and so variants, that a kernel has."""
MAX_TERMS = 80
"""Most cost terms of a kernel with several orders, which take long to derive and compile."""


@dataclass(frozen=True)
class Variant:
    """One contraction order: the nodes that are computed, and the facts of structure of nodes."""

    nodes: tuple[ir.Node, ...]
    facts: dict[ir.Node, frozenset[str]]

    @cached_property
    def terms(self) -> list[tuple[int, sympy.Expr]]:
        """The cost as (weight, product of sizes)."""
        costs = []
        for node in ir.topological(self.nodes):
            if isinstance(node, ir.Einsum) and len(node.factors) > 1:
                costs += work(node)
        return costs

    def cost(self, numbers: Numbers) -> float:
        return sum(weight * numbers(size) for weight, size in self.terms)

    @property
    def polynomial(self) -> sympy.Expr:
        return sympy.expand(sympy.Add(*(weight * size for weight, size in self.terms)))


def variants(roots: Sequence[ir.Node]) -> list[Variant]:
    """List the contraction orders of a kernel, the best for usual sizes first."""
    selected = [best_variant(roots)]
    sizes = _sizes(roots)
    if len(sizes) < 2 or not 0 < len(selected[0].terms) <= MAX_TERMS:
        return selected
    assumed = [_numbers(values) for values in _combinations(sizes)]
    candidates = {
        candidate.nodes: candidate for candidate in (best_variant(roots, n) for n in assumed)
    }
    while len(selected) < MAX_VARIANTS:
        cost_ratios = [
            (min(v.cost(numbers) for v in selected) / candidate.cost(numbers), candidate)
            for numbers in assumed
            for candidate in candidates.values()
        ]
        cost_ratio, best = max(cost_ratios, key=lambda pair: pair[0])
        if cost_ratio < MIN_COST_RATIO:
            break
        selected.append(best)
    return selected


def best_variant(roots: Sequence[ir.Node], numbers: Numbers = nominal) -> Variant:
    """Choose the best contraction order for the sizes that `numbers` assumes."""
    nodes, facts = pairwise(roots, numbers)
    new = join_contractions(nodes, numbers)
    new_facts = {new.get(node, node): old_facts for node, old_facts in facts.items()}
    return Variant(tuple(new[node] for node in nodes), new_facts)


def _sizes(roots: Sequence[ir.Node]) -> list[sympy.Symbol]:
    """Collect the symbolic sizes of the axes that products run over."""
    sizes = {
        symbol
        for node in ir.topological(roots)
        if isinstance(node, ir.Einsum) and len(node.factors) > 1
        for size in node.sizes
        for symbol in size.free_symbols
    }
    return sorted(sizes, key=str)


def _combinations(
    sizes: Sequence[sympy.Symbol],
) -> Iterator[tuple[tuple[sympy.Symbol, sympy.Integer], ...]]:
    """Yield the numbers assumed for `sizes`, in pairs; others have their nominal numbers."""
    if len(sizes) <= MAX_COMBINED_SIZES:
        for values in itertools.product(ASSUMED_SIZES, repeat=len(sizes)):
            yield tuple(zip(sizes, values, strict=True))
        return
    for size, value in itertools.product(sizes, ASSUMED_SIZES):
        yield ((size, value),)


@cache  # kernels of a function have the same sizes
def _numbers(values: tuple[tuple[sympy.Symbol, sympy.Integer], ...]) -> Numbers:
    return cache(lambda size: nominal(size.xreplace(dict(values))))
