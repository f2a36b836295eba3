"""Lengths at zero: what derivatives divide by them is taken to be zero there.

‖x‖ has no derivative at 0, and what is made of it, as x ‖x‖, may have one: by a quotient 0/0. With
the subgradient 0 of ‖x‖ the quotients' values are right wherever the derivative exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import sympy

from derivatrix.compiler.ir.graph import rebuilt
from derivatrix.compiler.ir.nodes import Einsum, Factor, Map, Node, Sum, slot, topological
from derivatrix.compiler.ir.signs import positive
from derivatrix.compiler.ir.structure import facts


def with_lengths(roots: Sequence[Node], values: Iterable[Node]) -> list[Node]:
    """The nodes of derivatives with negative powers of lengths 0 where the length is: but for
    lengths that the function's own `values` divide by, and so have no value at."""
    order = topological(values)
    kept = {base for node in order for power in _powers(node) for base in _bases(node, power)}
    new: dict[Node, Node] = {}
    for node in topological(roots):
        made = rebuilt(node, new)
        guarded = {
            power: sympy.Piecewise((0, sympy.Eq(power.base, 0)), (power, True))
            for power in _powers(node)
            if _of_a_length(node, power) and not kept & {*_bases(node, power)}
        }
        if guarded:
            assert isinstance(made, Map)
            made = Map(made.expression.xreplace(guarded), made.arguments)
        new[node] = made
    return [new[root] for root in roots]


def _powers(node: Node) -> Iterator[sympy.Pow]:
    """The negative powers in a function of entries."""
    if isinstance(node, Map):
        powers = node.expression.atoms(sympy.Pow)
        yield from (power for power in powers if power.exp.is_number and power.exp.is_negative)


def _bases(node: Node, power: sympy.Pow) -> Iterator[Node]:
    """The array that is raised to a power, if it is one; else the function of arrays."""
    assert isinstance(node, Map)
    slots = {slot(place): argument for place, argument in enumerate(node.arguments)}
    yield slots.get(power.base) or Map(power.base, node.arguments)


def _of_a_length(node: Node, power: sympy.Pow) -> bool:
    """Whether a power comes about by derivatives of s ** a, where s is a sum of powers of a degree
    q with q a >= 1: so that s ** a has slopes, though no derivative, where s is zero."""
    assert isinstance(node, Map)
    if power.exp.is_Integer:
        return False
    degree = _degree(power.base, node.arguments)
    return degree is not None and bool(degree * (power.exp % 1) >= 1)


def _degree(expression: sympy.Expr, arguments: Sequence[Node]) -> sympy.Expr | None:
    """Of a sum of non-negative powers of whatever numbers, zero only where all of these are, the
    least exponent; None for what is no such sum."""
    slots = {slot(place): argument for place, argument in enumerate(arguments)}
    parts = [_degree(part, arguments) for part in expression.args]
    known = [part for part in parts if part is not None]
    match expression:
        case sympy.Symbol():
            return _degree_of(slots[expression])
        case sympy.Abs():
            return sympy.S.One
        case sympy.Pow(args=(_, exponent)) if exponent.is_number and exponent.is_positive:
            return exponent if exponent.is_even else known[0] * exponent if parts[0] else None
        case sympy.Add() | sympy.Mul() if len(known) == len(parts):
            return sympy.Min(*known) if isinstance(expression, sympy.Add) else sympy.Add(*known)
    return sympy.S.Zero if expression.is_positive else None


@lru_cache(maxsize=65536)
def _degree_of(node: Node) -> sympy.Expr | None:
    """`_degree` of a node's entries."""
    if positive(node):
        return sympy.S.Zero
    match node:
        case Map():
            return _degree(node.expression, node.arguments)
        case Sum() if node.terms:
            degrees = [_degree_of(term) for term in node.terms]
            known = [degree for degree in degrees if degree is not None]
            return sympy.Min(*known) if len(known) == len(degrees) else None
        case Einsum() if node.coefficient.is_positive:
            return _degree_of_product(node.factors)
    return None


def _degree_of_product(factors: Sequence[Factor]) -> sympy.Expr | None:
    total = sympy.S.Zero
    for (node, labels), count in Counter(factors).items():
        if count % 2 == 0:
            total += count
        elif (degree := _degree_of(node)) is not None:
            total += count * degree
        else:
            rest = [factor for factor in factors if factor != (node, labels)]
            definite = count == 1 and len({*labels[-2:]}) == 2 and "spd" in facts(node)
            return _degree_of_form(rest, *labels[-2:]) if definite else None
    return total


def _degree_of_form(factors: Sequence[Factor], row: int, column: int) -> sympy.Expr | None:
    """The degree of v' A v with a definite A, of which the other factors are given."""
    sides = [
        Counter(
            (node, tuple(-1 if label == own else label for label in labels))
            for node, labels in factors
            if own in labels
        )
        for own in (row, column)
    ]
    others = [factor for factor in factors if not {row, column} & {*factor[1]}]
    degree = _degree_of_product(others)
    same = sides[0] == sides[1] and sum(sides[0].values()) == 1
    return 2 + degree if same and degree is not None else None
