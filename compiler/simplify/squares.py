"""Squares of lengths: arrays that are sums of powers of any numbers, zero only where these are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import sympy

from derivatrix.compiler.ir.nodes import Einsum, Factor, Labels, Map, Node, Sum, slot
from derivatrix.compiler.ir.signs import positive
from derivatrix.compiler.ir.structure import facts


def variables(node: Map) -> Iterator[tuple[sympy.Expr, Node, sympy.Expr]]:
    """What a function of entries has of lengths' squares: the expression, its node and degree."""
    slots = slots_of(node)
    powers = [p.base for p in node.expression.atoms(sympy.Pow) if not _natural(p.exp)]
    compound = sorted({b for b in powers if not b.is_Symbol}, key=sympy.default_sort_key)
    for base in [*slots, *compound]:
        length = slots.get(base) or Map(base, node.arguments)
        degree = degree_in(base, node.arguments)
        if degree is not None and degree.is_positive:
            yield base, length, degree


def _natural(exponent: sympy.Expr) -> bool:
    return bool(exponent.is_Integer and exponent.is_positive)


def slots_of(node: Map) -> dict[sympy.Expr, Node]:
    return {slot(place): argument for place, argument in enumerate(node.arguments)}


def roots(node: Map) -> list[sympy.Pow]:
    """The roots of squares of lengths in a function of these."""
    slots = slots_of(node)
    return [
        power
        for power in node.expression.atoms(sympy.Pow)
        if power.base in slots
        and power.exp.is_Rational
        and not power.exp.is_Integer
        and _is_square(slots[power.base])
    ]


def _is_square(node: Node) -> bool:
    """Whether a node is a power of a length, zero where that is."""
    degree = degree_of(node)
    return degree is not None and bool(degree.is_positive)


def degree_in(expression: sympy.Expr, arguments: Sequence[Node]) -> sympy.Expr | None:
    """Of a sum of non-negative powers of whatever numbers, zero only where all of these are, the
    least exponent; None for what is no such sum."""
    slots = {slot(place): argument for place, argument in enumerate(arguments)}
    parts = [degree_in(part, arguments) for part in expression.args]
    known = [part for part in parts if part is not None]
    match expression:
        case sympy.Symbol():
            return degree_of(slots[expression])
        case sympy.Abs():
            return sympy.S.One
        case sympy.Pow(args=(_, exponent)) if exponent.is_number and exponent.is_positive:
            return exponent if exponent.is_even else known[0] * exponent if parts[0] else None
        case sympy.Add() | sympy.Mul() if len(known) == len(parts):
            return sympy.Min(*known) if isinstance(expression, sympy.Add) else sympy.Add(*known)
    return sympy.S.Zero if expression.is_positive else None


@lru_cache(maxsize=65536)
def degree_of(node: Node) -> sympy.Expr | None:
    """`_degree` of a node's entries."""
    if positive(node):
        return sympy.S.Zero
    match node:
        case Map():
            return degree_in(node.expression, node.arguments)
        case Sum() if node.terms:
            degrees = [degree_of(term) for term in node.terms]
            known = [degree for degree in degrees if degree is not None]
            return sympy.Min(*known) if len(known) == len(degrees) else None
        case Einsum() if node.coefficient.is_positive:
            return _degree_of_product(node.factors, node.contracted)
    return None


def _degree_of_product(factors: Sequence[Factor], summed: Labels) -> sympy.Expr | None:
    total = sympy.S.Zero
    rest: list[Factor] = []
    for (node, labels), count in Counter(factors).items():
        if count % 2 == 0:
            total += count
        elif (degree := degree_of(node)) is not None:
            total += count * degree
        else:
            rest += [(node, labels)] * count
    if not rest:
        return total
    return total + 2 if _is_definite(rest, summed) else None


def _is_definite(factors: Sequence[Factor], summed: Labels) -> bool:
    """Whether a product is v' (A ⊗ B ⊗ ...) v with definite matrices A, B, ...: two equal halves
    v, whose summed labels are equal or linked by such matrices."""
    links = [f for f in factors if "spd" in facts(f[0]) and len(set(f[1][-2:])) == 2]
    rest = [factor for factor in factors if factor not in links]

    def search(rest: Sequence[Factor], names: Mapping[int, int]) -> bool:
        """Whether the rest splits into halves, of which `names` maps labels to each other's."""
        if not rest:
            linked = {frozenset(labels[-2:]) for _, labels in links}
            pairs = {frozenset(pair) for pair in names.items() if pair[0] != pair[1]}
            return linked <= pairs and not {*names} & {b for a, b in names.items() if a != b}
        (node, labels), *others = rest
        for place, (other, axes) in enumerate(others):
            if other is node:
                left = [*others[:place], *others[place + 1 :]]
                turned = [(*axes[:-2], *axes[:-3:-1])] if "symmetric" in facts(node) else []
                for target in (axes, *turned):
                    for pair in ((labels, target), (target, labels)):
                        new = _extended(names, *pair, summed)
                        if new is not None and search(left, new):
                            return True
        return False

    return search(rest, {})


def _extended(
    names: Mapping[int, int], labels: Labels, targets: Labels, summed: Labels
) -> Mapping[int, int] | None:
    """The map of labels that also maps these to these; None where it cannot, and for labels that
    are not summed and differ."""
    new = dict(names)
    for label, target in zip(labels, targets, strict=True):
        if new.setdefault(label, target) != target or (label != target and label not in summed):
            return None
    return new
