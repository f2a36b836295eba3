"""Definitions for repeated parts of a formula, and conventions that need an explanation."""

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
    DefinedTree,
    Definition,
    assign_letters,
    letter_of,
    provisional_name,
    typical_name,
)
from derivatrix.compiler.formulas.printers.mathematics import MathPrinter
from derivatrix.compiler.formulas.rewrite import occurrences, replaced
from derivatrix.compiler.formulas.tree import Indices, Tree

MIN_LENGTH = 6
"""Shortest text of a part that is defined, unless books have a letter for it."""

MIN_SAVING = 4
"""Fewest characters that a definition must save, unless books have a letter for the part."""

DEFINITION_LENGTH, WHERE_LENGTH = 6, 6
"""Characters of a definition beside its part, and of "where" before the first one."""

DEFINABLE = (
    *(kinds.Add, kinds.Call, kinds.Function, kinds.Hadamard, kinds.Kronecker, kinds.Matmul),
    *(kinds.Norm, kinds.Power, kinds.Total, kinds.Trace),
)

Measure = Callable[[Tree], int]
"""The length of a tree's text."""


def name_repeated_parts(
    tree: Tree, definitions: Sequence[Definition], measure: Measure, reserved: set[str]
) -> DefinedTree:
    """Define the parts that a formula repeats, each before the definitions that use it. In place of
    an inverse the inverted matrix is defined. reserved: names that no part may have."""
    definitions = list(definitions)
    numbers = count(len(definitions) + 1)
    while True:
        counts = occurrences([tree, *(definition.tree for definition in definitions)])
        # Parts within a differential, as X⁻¹ in d(X⁻¹), are read as one sign with it.
        for differential in [part for part in counts if isinstance(part, kinds.Differential)]:
            inside = occurrences([differential.body])
            counts.subtract({part: times * counts[differential] for part, times in inside.items()})
        entries = {part: entry for part in counts if (entry := _entry(part)) is not None}
        for part, (array, _) in entries.items():
            counts[array] += counts[part]
        inverted = _inverted(counts)
        overhead = DEFINITION_LENGTH + (0 if definitions else WHERE_LENGTH)
        repeated = _most_repeated(counts, inverted, measure, overhead)
        if repeated is None:
            return assign_letters(tree, definitions, inverted, reserved)
        transposed = algebra.transpose_if_matrix(repeated)
        name = provisional_name(repeated.rank, next(numbers), repeated == transposed)
        table: dict[Tree, Tree] = {transposed: algebra.transpose(name), repeated: name}
        for part, (array, indices) in entries.items():
            if array in (repeated, transposed):
                table[part] = kinds.Indexed(name, indices if array == repeated else indices[::-1])
        tree, definitions = _replace_in_all(tree, definitions, table)
        parts_within = occurrences([repeated])
        place = max(
            (i + 1 for i, earlier in enumerate(definitions) if earlier.name in parts_within),
            default=0,
        )
        definitions.insert(place, Definition(name, repeated, (None,) * repeated.rank))
        tree, definitions = _without_aliases(tree, definitions)


def _replace_in_all(
    tree: Tree, definitions: Sequence[Definition], table: Mapping[Tree, Tree]
) -> DefinedTree:
    return replaced(tree, table), [
        replace(definition, tree=replaced(definition.tree, table)) for definition in definitions
    ]


def _without_aliases(tree: Tree, definitions: Sequence[Definition]) -> DefinedTree:
    """Remove definitions that only rename another one."""
    aliases: dict[Tree, Tree] = {
        definition.name: definition.tree
        for definition in definitions
        if isinstance(definition.tree, kinds.Name)
        and definition.indices.count(None) == len(definition.indices)
    }
    remaining = [definition for definition in definitions if definition.name not in aliases]
    return _replace_in_all(tree, remaining, aliases)


def _inverted(parts: Iterable[Tree]) -> set[Tree]:
    """Collect the matrices that are inverted, without transposes."""
    bases = [part.body for part in parts if _is_inverse(part)]
    return {base.body if isinstance(base, kinds.Transpose) else base for base in bases}


def _is_inverse(part: Tree) -> TypeGuard[kinds.Power]:
    return isinstance(part, kinds.Power) and part.exponent < 0


def _entry(part: Tree) -> tuple[Tree, Indices] | None:
    """Read a function of entries, tanh((A B)[i,j]), as entry [i,j] of an array, tanh(A B)."""
    if not isinstance(part, kinds.Function) or part.rank:
        return None
    entries = [argument for argument in part.arguments if isinstance(argument, kinds.Indexed)]
    if len(entries) < len(part.arguments) or len({entry.indices for entry in entries}) > 1:
        return None
    bodies = tuple(entry.body for entry in entries)
    if isinstance(bodies[0], kinds.Name):
        return None
    return replace(part, axes=bodies[0].rank, arguments=bodies), entries[0].indices


def _most_repeated(
    counts: Counter[Tree], inverted: Set[Tree], measure: Measure, overhead: int
) -> Tree | None:
    """Find the part whose definition saves most characters, or one within it that occurs elsewhere
    as well. inverted: matrices whose inverses occur; overhead: characters of a definition beside
    the part."""

    def order(part: Tree) -> tuple[bool, int, str]:
        return part not in counts, part.counts[kinds.Transpose], part.sort_key

    savings: dict[Tree, int] = {}
    total_counts: dict[Tree, int] = {}
    for part, part_count in counts.items():
        if not isinstance(part, DEFINABLE) or part.letters or part.rank > 2 or _is_inverse(part):
            continue
        if part.counts.keys() <= {kinds.Matmul, kinds.Transpose, kinds.Unit}:
            continue
        transposed = algebra.transpose_if_matrix(part)
        if transposed not in (part, kinds.Transpose(part)):
            part_count += counts[transposed]
        if part_count < 2 or order(transposed) < order(part):
            continue
        letter = letter_of(part, part in inverted)
        length = measure(part)
        parentheses = 2 if part in inverted and not letter_of(part, False) else 0
        written_length = length + parentheses + isinstance(part, kinds.Add)
        name_length = measure(typical_name(part.rank, letter))
        saving = part_count * (written_length - name_length) - length - overhead
        shortens = saving >= 0 if letter else saving >= MIN_SAVING and length >= MIN_LENGTH
        if shortens or letter == "P" or (letter and isinstance(part, kinds.Call)):
            savings[part], total_counts[part] = saving, part_count

    def best(parts: Iterable[Tree]) -> Tree | None:
        return max(parts, key=lambda part: (savings[part], part.sort_key), default=None)

    chosen, inner = None, best(savings)
    while inner is not None:
        chosen = inner
        inside = occurrences(chosen.children)
        inner = best(
            part
            for part in savings
            if inside[part] and total_counts[part] > total_counts[chosen] * inside[part]
        )
    return chosen


def complements(trees: Sequence[Tree]) -> dict[Tree, Tree]:
    """Replace sigmoid(−t) by 1 − sigmoid(t) where sigmoid(t) occurs as well."""
    sigmoids = [
        part
        for part in occurrences(trees)
        if isinstance(part, kinds.Function) and part.head == "sigmoid"
    ]
    table: dict[Tree, Tree] = {}
    for part in sigmoids:
        opposite = replace(part, arguments=(algebra.negative(part.arguments[0]),))
        positive, negative = sorted(
            (part, opposite), key=lambda tree: (tree.arguments[0].is_negative, tree.sort_key)
        )
        if opposite in sigmoids and not (positive.letters and _entry(positive) is None):
            one = kinds.Number(sympy.S.One)
            table[negative] = algebra.add([one, algebra.scale(-sympy.S.One, [], positive)])
    return table


def definition_texts(
    printer: MathPrinter, tree: Tree, definitions: Sequence[Definition]
) -> list[tuple[str, str]]:
    """Write the left and right sides of the definitions that a formula uses, of [0 > 0] = 1/2, the
    value at a tie, if it has [t > 0], and the meaning of bold signs."""
    trees = [tree, *(definition.tree for definition in definitions)]
    powers = [part.body for part in occurrences(trees) if isinstance(part, kinds.Power)]
    bases = {base.body if isinstance(base, kinds.Transpose) else base for base in powers}
    lines = []
    for definition in definitions:
        write = printer.matrix if definition.name in bases else printer.text
        left = printer.left_side(printer.bare(definition.name), definition.indices)
        right = write(definition.tree)
        if left != right:  # in LaTeX, the start h0 of a loop is written as the state at time 0
            lines.append((left, right))
    if any(tree.counts[kinds.Positive] for tree in trees):
        zero = kinds.Positive(0, kinds.Number(sympy.S.Zero))
        lines.append((printer.text(zero), printer.text(kinds.Number(sympy.S.Half))))
    return lines + printer.legend([printer.text(tree), *(right for _, right in lines)])


def plain_indicators(trees: Sequence[Tree]) -> dict[Tree, Tree]:
    """Replace `Positive` of t by ([t > 0] + [t >= 0]) / 2 where comparisons occur as well, which
    a reader could not tell from it."""
    parts = occurrences(list(trees))
    if not any(isinstance(part, kinds.Relation) for part in parts):
        return {}
    zero = kinds.Number(sympy.S.Zero)
    table: dict[Tree, Tree] = {}
    for part in parts:
        if isinstance(part, kinds.Positive):
            relations = (kinds.Relation(part.axes, sign, part.body, zero) for sign in (">", ">="))
            total = kinds.Add(part.axes, tuple(relations))
            scalars, body = ((), total) if part.axes else ((total,), None)
            table[part] = kinds.Scale(sympy.S.Half, scalars, body)
    return table
