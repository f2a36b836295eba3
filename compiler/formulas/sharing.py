"""What a formula repeats, given a name; and conventions that a reader has to be told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeGuard

import sympy

from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.build import Definition
from derivatrix.compiler.formulas.length import length
from derivatrix.compiler.formulas.printers.mathematics import MathPrinter
from derivatrix.compiler.formulas.rewrite import occurrences, replaced
from derivatrix.compiler.formulas.tree import Tree

SHORTEST = 6
"""Parts that are shorter than this get no name."""

GAIN = 12
"""How many characters a name must save."""

NAMED = (kinds.Call, kinds.Function, kinds.Hadamard, kinds.Matmul, kinds.Power)

Formula = tuple[Tree, list[Definition]]


def shared(
    tree: Tree, definitions: Sequence[Definition], name: Callable[[int, str], kinds.Name]
) -> Formula:
    """A formula with names for the parts that it repeats. `name`: a new name for a rank,
    if possible this letter. What is inverted and stands elsewhere, too, as in its determinant, is
    named instead of its inverse."""
    names = [part.name for part in definitions]
    known = {part.name: part for part in definitions}
    trees: dict[kinds.Name | None, Tree] = {
        None: tree,
        **{part.name: part.tree for part in definitions},
    }
    counts = {key: occurrences([own]) for key, own in trees.items()}
    while True:
        total: Counter[Tree] = Counter()
        for found in counts.values():
            total.update(found)
        part = _repeated(total)
        if part is None:
            break
        letter = letter_of(part)
        if _is_inverse(part) and total[part.body] > total[part]:
            part = part.body
            letter = letter_of(part) or "M"
        own = name(part.rank, letter)
        known[own] = Definition(own, part, (None,) * part.rank)
        for key in [key for key, found in counts.items() if part in found]:
            trees[key] = replaced(trees[key], {part: own})
            counts[key] = occurrences([trees[key]])
        trees[own], counts[own] = part, occurrences([part])
        used = [i for i, old in enumerate(names) if old in counts[own]]
        names.insert(max(used, default=-1) + 1, own)
    return trees[None], [replace(known[own], tree=trees[own]) for own in names]


def _is_inverse(part: Tree) -> TypeGuard[kinds.Power]:
    """Whether a part is the inverse, or a power of it, of what has no name."""
    if not isinstance(part, kinds.Power) or part.exponent > 0:
        return False
    return not isinstance(part.body, kinds.Name)


def letter_of(part: Tree) -> str:
    """The letter that a factor of a matrix, or a matrix of probabilities, has in books; "" for what
    has none."""
    if not isinstance(part, kinds.Call):
        return ""
    if part.operation.name == "softmax":
        return "P" if part.rank > 1 else "p"
    letters = part.operation.letters
    return letters[part.output] if part.output < len(letters) else ""


def numbered(tree: Tree, definitions: Sequence[Definition]) -> Formula:
    """The same with the definitions' numbers in the order in which they stand."""
    texts = [part.name.python[1:] for part in definitions]
    numbers = iter(sorted(int(text) for text in texts if text.isdigit()))
    table: dict[Tree, Tree] = {}
    names = []
    for text, part in zip(texts, definitions, strict=True):
        if not text.isdigit():
            names.append(part.name)
            continue
        number = next(numbers)
        base = part.name.base.rstrip("0123456789")
        names.append(replace(part.name, base=f"{base}{number}", python=f"t{number}"))
        table[part.name] = names[-1]
    parts = [
        replace(part, name=name, tree=replaced(part.tree, table))
        for name, part in zip(names, definitions, strict=True)
    ]
    return replaced(tree, table), parts


def _repeated(total: Counter[Tree]) -> Tree | None:
    """The part that a name saves most for."""
    candidates: list[tuple[int, str, Tree]] = []
    for part, count in total.items():
        if count < 2 or not isinstance(part, NAMED) or part.letters or part.rank > 2:
            continue
        saved = (count - 1) * (length(part) - 2) - 6
        if length(part) >= SHORTEST and (saved >= GAIN or letter_of(part)):
            candidates.append((saved, part.sort_key, part))
    return max(candidates, key=lambda candidate: candidate[:2])[2] if candidates else None


def definition_texts(
    printer: MathPrinter, tree: Tree, parts: Sequence[Definition]
) -> list[tuple[str, str]]:
    """The left and right sides of the definitions that a formula uses; where it has [t > 0], also
    [0 > 0] = 1/2, the value at a tie."""
    lines = [
        (printer.left_side(printer.text(part.name), part.indices), printer.text(part.tree))
        for part in parts
    ]
    if any(own.counts[kinds.Positive] for own in (tree, *(part.tree for part in parts))):
        zero = kinds.Positive(0, kinds.Number(sympy.S.Zero))
        lines.append((printer.text(zero), printer.text(kinds.Number(sympy.S.Half))))
    return lines


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
