"""Sort keys that order factors and terms as they are written."""

from __future__ import annotations

from derivatrix.compiler.formulas.length import shortest_first
from derivatrix.compiler.formulas.tree import (
    Bracket,
    Differential,
    Indexed,
    Matmul,
    Name,
    Number,
    Power,
    Raise,
    Size,
    Transpose,
    Tree,
    divisor,
)


def scalar_order(tree: Tree) -> tuple[int, str]:
    """Order numbers, sizes, cotangents, names, others; keep the order of entries of arrays."""
    if isinstance(tree, Number):
        return 0, tree.sort_key
    if isinstance(tree, Size) or (isinstance(tree, Raise) and isinstance(tree.body, Size)):
        return 1, tree.sort_key
    if isinstance(tree, Bracket):
        return 5, tree.sort_key
    if tree.counts[Indexed]:  # in the order of `chain_factors`: neighbours share an index
        return 6, ""
    base = tree.body if isinstance(tree, Raise) else tree
    if not isinstance(base, Name):
        return 4, tree.sort_key
    return (2 if base.accent else 3), tree.sort_key


def term_order(tree: Tree) -> tuple[int, bool, int, str]:
    """Order terms with a cotangent far left first, then positive ones, then short ones."""
    position = tree.accent_position
    beyond_all = 1 << 20
    place = position if position is not None else beyond_all
    return place, tree.is_negative, *shortest_first(tree)


def factor_order(tree: Tree) -> tuple[bool, bool, bool, str]:
    """Order cotangents first, then names, divisors last."""
    is_divisor, has_accent = divisor(tree) is not None, tree.accent_position is not None
    return is_divisor, not has_accent, not isinstance(tree, Name), tree.sort_key


def chain_order(chain: list[Tree]) -> tuple[int, bool, list[str]]:
    """Prefer few transposes, then a cotangent as first factor."""
    count = sum(factor.counts[Transpose] for factor in chain)
    return count, chain[0].accent_position is None, [factor.sort_key for factor in chain]


def trace_order(tree: Tree) -> tuple[int, bool, int, bool, str]:
    """Prefer few factors, a differential last, few transposes, an inverse or transpose first."""
    factors = tree.factors if isinstance(tree, Matmul) else (tree,)
    is_inverse = isinstance(factors[0], Power) and factors[0].exponent < 0
    has_preferred_start = is_inverse or isinstance(factors[0], Transpose)
    is_rotated = tree.counts[Differential] > 0 and not isinstance(factors[-1], Differential)
    transposes = tree.counts[Transpose]
    return len(factors), is_rotated, transposes, not has_preferred_start, tree.sort_key
