"""Sort keys: in which order factors and terms are written."""

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
    """Numbers, sizes, cotangents, names, others; entries of arrays stay as they come."""
    if isinstance(tree, Number):
        return 0, tree.sort_key
    if isinstance(tree, Size) or (isinstance(tree, Raise) and isinstance(tree.body, Size)):
        return 1, tree.sort_key
    if isinstance(tree, Bracket):
        return 5, tree.sort_key
    if tree.counts[Indexed]:
        return 6, ""
    base = tree.body if isinstance(tree, Raise) else tree
    if not isinstance(base, Name):
        return 4, tree.sort_key
    return (2 if base.accent else 3), tree.sort_key


def term_order(tree: Tree) -> tuple[int, bool, int, str]:
    """The term whose cotangent stands leftmost first, positive before negative, then shorter."""
    position = tree.accent_position
    place = position if position is not None else 1 << 20
    return place, tree.is_negative, *shortest_first(tree)


def factor_order(tree: Tree) -> tuple[bool, bool, bool, str]:
    """Cotangents first, then names, divisors last."""
    plain = isinstance(tree, Name)
    return divisor(tree) is not None, tree.accent_position is None, not plain, tree.sort_key


def chain_order(chain: list[Tree]) -> tuple[int, bool, list[str]]:
    """Few transposes, a cotangent first."""
    count = sum(factor.counts[Transpose] for factor in chain)
    return count, chain[0].accent_position is None, [factor.sort_key for factor in chain]


def trace_order(tree: Tree) -> tuple[int, bool, int, bool, str]:
    """Few factors, a differential last, few transposes, an inverse or transpose first."""
    factors = tree.factors if isinstance(tree, Matmul) else (tree,)
    first = factors[0]
    inverse = isinstance(first, Power) and first.exponent < 0
    leads = inverse or isinstance(first, Transpose)
    moves = tree.counts[Differential] > 0 and not isinstance(factors[-1], Differential)
    return len(factors), moves, tree.counts[Transpose], not leads, tree.sort_key
