"""Squares of lengths: sums of non-negative powers of numbers, zero only where all of these are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import sympy

from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.nodes import (
    Einsum,
    Factor,
    Labels,
    Map,
    Node,
    Structural,
    Sum,
    literal,
    slot,
)
from derivatrix.compiler.ir.signs import is_positive
from derivatrix.compiler.ir.structure import facts

INCREASING = (
    *(sympy.atan, sympy.tanh, sympy.sinh, sympy.asinh, sympy.erf),
    *(scalar_functions.log1p, scalar_functions.expm1),
)
"""Increasing functions that are zero at 0 only, and have a finite slope there, not 0."""


def variables(node: Map) -> Iterator[tuple[sympy.Expr, Node, sympy.Expr]]:
    """Yield the squares of lengths in a function of entries: expression, node and degree."""
    slots = slots_of(node)
    powers = node.expression.atoms(sympy.Pow)
    bases = {p.base for p in powers if not (p.exp.is_Integer and p.exp.is_positive)}
    bases |= node.expression.atoms(sympy.Abs)
    compound = sorted({b for b in bases if not b.is_Symbol}, key=sympy.default_sort_key)
    for base in [*slots, *compound]:
        length = slots.get(base) or Map(base, node.arguments)
        degree = degree_in(base, node.arguments)
        if degree is not None and degree.is_positive:
            yield base, length, degree


def slots_of(node: Map) -> dict[sympy.Expr, Node]:
    return {slot(place): argument for place, argument in enumerate(node.arguments)}


def roots(node: Map) -> list[sympy.Pow]:
    """List the roots of squares of lengths in a function of entries."""
    slots = slots_of(node)
    return [
        power
        for power in node.expression.atoms(sympy.Pow)
        if power.base in slots
        and power.exp.is_Rational
        and not power.exp.is_Integer
        and (degree := degree_of(slots[power.base])) is not None
        and degree.is_positive
    ]


def degree_in(expression: sympy.Expr, arguments: Sequence[Node]) -> sympy.Expr | None:
    """Return the least exponent q in a sum f of non-negative powers that is zero only at x = 0,
    where f = O(‖x‖^q); None for other expressions."""
    slots = {slot(place): argument for place, argument in enumerate(arguments)}
    parts = [degree_in(part, arguments) for part in expression.args]
    degrees = [part for part in parts if part is not None]
    match expression:
        case sympy.Symbol():
            return degree_of(slots[expression])
        case sympy.Abs():
            return sympy.S.One
        case sympy.Function() if isinstance(expression, INCREASING):
            return parts[0]
        case sympy.log(args=(sympy.Symbol() as inside,)):
            return _degree_above_one(slots[inside])
        case sympy.Pow(args=(_, exponent)) if exponent.is_number and exponent.is_positive:
            return exponent if exponent.is_even else degrees[0] * exponent if parts[0] else None
        case sympy.Add() | sympy.Mul() if len(degrees) == len(parts):
            if isinstance(expression, sympy.Add):
                return sympy.Min(*degrees)
            by_variables: dict[frozenset[sympy.Basic], sympy.Expr] = {}
            for part, degree in zip(expression.args, degrees, strict=True):  # all zero together
                names = frozenset(part.free_symbols)
                by_variables[names] = by_variables.get(names, sympy.S.Zero) + degree
            return _of_product(by_variables.values())
    return sympy.S.Zero if expression.is_positive else None


@lru_cache(maxsize=65536)
def degree_of(node: Node) -> sympy.Expr | None:
    """Return `degree_in` of a node's entries."""
    if is_positive(node):
        return sympy.S.Zero
    match node:
        case Map():
            return degree_in(node.expression, node.arguments)
        case Einsum(factors=((Map(arguments=(Einsum() as inside,)) as function, _),)) if (
            node.coefficient.is_negative and isinstance(function.expression, INCREASING)
        ):
            return degree_of(inside.scaled(-inside.coefficient))  # -f(-u)
        case Sum() if node.terms:
            degrees = [degree_of(term) for term in node.terms]
            return None if None in degrees else sympy.Min(*degrees)
        case Einsum() if node.coefficient.is_positive:
            return _degree_of_product(node.factors, node.contracted)
    return None


def _degree_above_one(node: Node) -> sympy.Expr | None:
    """Return `degree_of` of the node minus 1."""
    if not isinstance(node, Sum):
        return None
    terms = tuple(term for term in node.terms if literal(term) != 1)
    return degree_of(Sum(terms, node.shape)) if 0 < len(terms) < len(node.terms) else None


def _degree_of_product(factors: Sequence[Factor], summed: Labels) -> sympy.Expr | None:
    degrees: list[sympy.Expr] = []
    unpaired: list[Factor] = []
    selections: list[Factor] = []
    for (node, labels), count in Counter(factors).items():
        if isinstance(node, Structural):  # selects entries: its own are 0 and 1
            selections += [(node, labels)] * count
        elif count % 2 == 0:
            degrees.append(sympy.Integer(count))
        elif (degree := degree_of(node)) is not None:
            degrees.append(count * degree)
        else:
            unpaired += [(node, labels)] * count
    if not unpaired:
        return _of_product(degrees)
    selected = {label for _, labels in selections for label in labels}
    free = tuple(label for label in summed if label not in selected)
    is_definite = _is_definite([*unpaired, *selections], summed) or _is_definite(unpaired, free)
    return _of_product([*degrees, sympy.Integer(2)]) if is_definite else None


def _of_product(degrees: Iterable[sympy.Expr]) -> sympy.Expr:
    """Return the degree of a product, which is zero where one factor is."""
    return (
        sympy.Min(*(degree for degree in degrees if degree != 0)) if any(degrees) else sympy.S.Zero
    )


def _is_definite(factors: Sequence[Factor], summed: Labels) -> bool:
    """Return whether a product is vᵀ (A ⊗ B ⊗ ...) v with definite matrices A, B, ...: two equal
    halves v, whose summed labels are equal or linked by such matrices."""
    links = [f for f in factors if "spd" in facts(f[0]) and len(set(f[1][-2:])) == 2]
    halves = [factor for factor in factors if factor not in links]

    def split_into_halves(factors: Sequence[Factor], names: Mapping[int, int]) -> bool:
        """Return whether the factors split into halves; `names` maps labels of one to the other."""
        if not factors:
            linked = {frozenset(labels[-2:]) for _, labels in links}
            pairs = {frozenset(pair) for pair in names.items() if pair[0] != pair[1]}
            return linked <= pairs and not {*names} & {b for a, b in names.items() if a != b}
        (node, labels), *candidates = factors
        for place, (candidate, axes) in enumerate(candidates):
            if candidate is node:
                remaining = [*candidates[:place], *candidates[place + 1 :]]
                transposed = [(*axes[:-2], *axes[:-3:-1])] if "symmetric" in facts(node) else []
                for target in (axes, *transposed):
                    for pair in ((labels, target), (target, labels)):
                        extended = _extended(names, *pair, summed)
                        if extended is not None and split_into_halves(remaining, extended):
                            return True
        return False

    return split_into_halves(halves, {})


def _extended(
    names: Mapping[int, int], labels: Labels, targets: Labels, summed: Labels
) -> Mapping[int, int] | None:
    """Extend the map of labels by `labels` -> `targets`; None where that contradicts it, or maps a
    label to another if they are not both summed."""
    new, free = dict(names), {*summed}
    for label, target in zip(labels, targets, strict=True):
        is_renamed = label != target
        if new.setdefault(label, target) != target or (is_renamed and not {label, target} <= free):
            return None
    return new
