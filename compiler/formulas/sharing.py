"""What a formula repeats, given a name; and conventions that a reader has to be told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import count
from typing import TypeGuard

import sympy

from derivatrix.compiler.formulas import algebra
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.definitions import (
    Definition,
    Formula,
    letter_of,
    lettered,
    named_like,
    unnamed,
)
from derivatrix.compiler.formulas.printers.mathematics import MathPrinter
from derivatrix.compiler.formulas.rewrite import occurrences, replaced
from derivatrix.compiler.formulas.tree import Indices, Tree

SHORTEST = 6
"""Parts that are shorter than this get no name, unless one of books."""

GAIN = 4
"""How many characters a name that is none of books must save."""

NAMED = (
    *(kinds.Add, kinds.Call, kinds.Function, kinds.Hadamard, kinds.Kronecker, kinds.Matmul),
    *(kinds.Norm, kinds.Power, kinds.Total, kinds.Trace),
)

Measure = Callable[[Tree], int]
"""The length of a tree's text."""


def named(
    tree: Tree, definitions: Sequence[Definition], measure: Measure, reserved: set[str]
) -> Formula:
    """A formula with names for the parts that it repeats, each before those that use it. What is
    inverted is named instead of its inverse. reserved: what no part may be called."""
    parts = list(definitions)
    numbers = count(len(parts) + 1)
    while True:
        total = occurrences([tree, *(part.tree for part in parts)])
        for moving in [own for own in total if isinstance(own, kinds.Differential)]:
            inside = occurrences([moving.body])
            total.subtract({own: times * total[moving] for own, times in inside.items()})
        entries = {own: entry for own in total if (entry := _entry(own)) is not None}
        for own, (whole, _) in entries.items():
            total[whole] += total[own]
        inverted = _inverted(total)
        found = _repeated(total, inverted, measure, 6 if parts else 12)
        if found is None:
            return lettered(tree, parts, inverted, reserved)
        turned = _turned(found)
        name = unnamed(found.rank, next(numbers), found == turned)
        table: dict[Tree, Tree] = {turned: algebra.transpose(name), found: name}
        for own, (whole, indices) in entries.items():
            if whole in (found, turned):
                table[own] = kinds.Indexed(name, indices if whole == found else indices[::-1])
        tree = replaced(tree, table)
        parts = [replace(part, tree=replaced(part.tree, table)) for part in parts]
        used = occurrences([found])
        place = max((i + 1 for i, part in enumerate(parts) if part.name in used), default=0)
        parts.insert(place, Definition(name, found, (None,) * found.rank))
        tree, parts = _without_aliases(tree, parts)


def _without_aliases(tree: Tree, parts: Sequence[Definition]) -> Formula:
    """The same without definitions of which another has all."""
    table: dict[Tree, Tree] = {
        part.name: part.tree
        for part in parts
        if isinstance(part.tree, kinds.Name) and part.indices.count(None) == len(part.indices)
    }
    return replaced(tree, table), [
        replace(part, tree=replaced(part.tree, table)) for part in parts if part.name not in table
    ]


def _turned(part: Tree) -> Tree:
    """The transpose of a matrix; anything else as it is."""
    return algebra.transpose(part) if part.rank == 2 else part


def _inverted(total: Counter[Tree]) -> set[Tree]:
    """What is inverted, itself or its transpose."""
    bases = [own.body for own in total if _is_inverse(own)]
    return {own.body if isinstance(own, kinds.Transpose) else own for own in bases}


def _is_inverse(part: Tree) -> TypeGuard[kinds.Power]:
    return isinstance(part, kinds.Power) and part.exponent < 0


def _entry(part: Tree) -> tuple[Tree, Indices] | None:
    """For a function of entries, tanh((A B)[i,j]), the array that it is an entry of, and where."""
    if not isinstance(part, kinds.Function) or part.rank:
        return None
    entries = [own for own in part.arguments if isinstance(own, kinds.Indexed)]
    if len(entries) < len(part.arguments) or len({own.indices for own in entries}) > 1:
        return None
    bodies = tuple(own.body for own in entries)
    if isinstance(bodies[0], kinds.Name):
        return None
    return replace(part, axes=bodies[0].rank, arguments=bodies), entries[0].indices


def _repeated(
    total: Counter[Tree], inverted: Set[Tree], measure: Measure, overhead: int
) -> Tree | None:
    """The part that a name saves most for. inverted: those whose inverses occur; overhead: how many
    characters a definition has beside the part."""

    def order(part: Tree) -> tuple[bool, int, str]:
        return part not in total, part.counts[kinds.Transpose], part.sort_key

    candidates: dict[Tree, tuple[int, int]] = {}
    for part, times in total.items():
        if not isinstance(part, NAMED) or part.letters or part.rank > 2 or _is_inverse(part):
            continue
        if part.counts.keys() <= {kinds.Matmul, kinds.Transpose, kinds.Unit}:
            continue
        turned = _turned(part)
        if turned not in (part, kinds.Transpose(part)):
            times += total[turned]
        if times < 2 or order(turned) < order(part):
            continue
        letter = letter_of(part, part in inverted)
        length = measure(part)
        written = length + (2 if part in inverted and not letter_of(part, False) else 0)
        written += isinstance(part, kinds.Add)
        short = measure(named_like(part.rank, letter))
        saved = times * (written - short) - length - overhead
        worth = saved >= 0 if letter else saved >= GAIN and length >= SHORTEST
        if worth or letter == "P" or (letter and isinstance(part, kinds.Call)):
            candidates[part] = times, saved
    return _inner(candidates) if candidates else None


def _inner(candidates: Mapping[Tree, tuple[int, int]]) -> Tree:
    """The part that saves most, or one within it that occurs elsewhere as well. candidates: how
    often each part occurs, and how many characters a name saves."""

    def best(found: Iterable[Tree]) -> Tree | None:
        return max(found, key=lambda own: (candidates[own][1], own.sort_key), default=None)

    chosen, inner = None, best(candidates)
    while inner is not None:
        chosen = inner
        inside = occurrences(chosen.children)
        times = candidates[chosen][0]
        inner = best(
            own for own in candidates if inside[own] and candidates[own][0] > times * inside[own]
        )
    assert chosen is not None
    return chosen


def complements(trees: Sequence[Tree]) -> dict[Tree, Tree]:
    """Where sigmoid(t) occurs as well: for each sigmoid(−t), 1 − sigmoid(t)."""
    found = [
        part
        for part in occurrences(trees)
        if isinstance(part, kinds.Function) and part.head == "sigmoid"
    ]
    table: dict[Tree, Tree] = {}
    for part in found:
        other = replace(part, arguments=(_negative(part.arguments[0]),))
        kept, turned = sorted(
            (part, other), key=lambda own: (own.arguments[0].is_negative, own.sort_key)
        )
        if other in found and not (kept.letters and _entry(kept) is None):
            negative = algebra.scale(-sympy.S.One, [], kept)
            table[turned] = algebra.add([kinds.Number(sympy.S.One), negative])
    return table


def _negative(tree: Tree) -> Tree:
    terms = tree.terms if isinstance(tree, kinds.Add) else (tree,)
    return algebra.add([algebra.scale(-sympy.S.One, [], term) for term in terms])


def definition_texts(
    printer: MathPrinter, tree: Tree, parts: Sequence[Definition]
) -> list[tuple[str, str]]:
    """The left and right sides of the definitions that a formula uses; where it has [t > 0], also
    [0 > 0] = 1/2, the value at a tie; and what bold signs stand for."""
    trees = [tree, *(part.tree for part in parts)]
    powers = [own.body for own in occurrences(trees) if isinstance(own, kinds.Power)]
    bases = {own.body if isinstance(own, kinds.Transpose) else own for own in powers}
    lines = []
    for part in parts:
        write = printer.matrix if part.name in bases else printer.text
        left = printer.left_side(printer.text(part.name), part.indices)
        lines.append((left, write(part.tree)))
    if any(own.counts[kinds.Positive] for own in trees):
        zero = kinds.Positive(0, kinds.Number(sympy.S.Zero))
        lines.append((printer.text(zero), printer.text(kinds.Number(sympy.S.Half))))
    return lines + printer.legend([printer.text(tree), *(right for _, right in lines)])


def plain_indicators(trees: Sequence[Tree]) -> dict[Tree, Tree]:
    """Where comparisons occur as well: for each `Positive` of t, ([t > 0] + [t >= 0]) / 2."""
    parts = occurrences(list(trees))
    if not any(isinstance(part, kinds.Relation) for part in parts):
        return {}
    return {part: _halves(part) for part in parts if isinstance(part, kinds.Positive)}


def _halves(part: kinds.Positive) -> Tree:
    zero = kinds.Number(sympy.S.Zero)
    both = tuple(kinds.Relation(part.axes, symbol, part.body, zero) for symbol in (">", ">="))
    total = kinds.Add(part.axes, both)
    half = sympy.S.Half
    return kinds.Scale(half, (), total) if part.axes else kinds.Scale(half, (total,), None)
