"""Replacing parts and letters of trees, and counting parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import fields, replace

import sympy

from derivatrix.compiler.formulas.tree import Over, Tree, index_of
from derivatrix.compiler.ir.dimensions import BATCH

Letters = Mapping[sympy.Basic, sympy.Symbol]
NO_LETTERS: Letters = {}


def mapped(tree: Tree, change: Callable[[Tree], Tree], letters: Letters = NO_LETTERS) -> Tree:
    """Rebuild a tree with every child changed, and its indices written in other letters; return the
    tree itself if nothing changes."""

    def new(value: object) -> object:
        if isinstance(value, Tree):
            return change(value)
        if letters and isinstance(value, sympy.Expr):
            return value.xreplace(letters)
        return tuple(map(new, value)) if isinstance(value, tuple) else value

    values = {part.name: getattr(tree, part.name) for part in fields(tree)}
    changed = {name: new(value) for name, value in values.items()}
    same = all(changed[name] is value or changed[name] == value for name, value in values.items())
    return tree if same else replace(tree, **changed)


def replaced(tree: Tree, table: Mapping[Tree, Tree]) -> Tree:
    """Replace each part of a tree that is a key of `table` by its value."""
    replacements: dict[Tree, Tree] = dict(table)

    def replacement(part: Tree) -> Tree:
        if part not in replacements:
            replacements[part] = mapped(part, replacement)
        return replacements[part]

    return replacement(tree)


def with_distinct_letters(
    tree: Tree,
    scope: Set[str],
    new_letter: Callable[[Set[str], bool], str],
    letters: Letters = NO_LETTERS,
) -> Tree:
    """Rename the letters of sums that a sum around them has, too, or that are in `scope`.

    new_letter: chooses one that is not in a set, for a sum over samples or another one. letters:
    the new letters of the sums around `tree`, by the former ones."""
    if not letters and not tree.counts[Over]:
        return tree
    if not isinstance(tree, Over):
        return mapped(
            tree, lambda part: with_distinct_letters(part, scope, new_letter, letters), letters
        )
    occupied, over = scope | {*tree.over}, []
    for letter, size in zip(tree.over, tree.sizes, strict=True):
        over.append(new_letter(occupied, size == BATCH) if letter in scope else letter)
        occupied |= {over[-1]}
    indices = dict(zip(map(index_of, tree.over), map(index_of, over), strict=True))
    body = with_distinct_letters(tree.body, occupied, new_letter, {**letters, **indices})
    return Over(tuple(over), body, tree.sizes)


def occurrences(trees: Iterable[Tree]) -> Counter[Tree]:
    """Count how often each part is written in all trees together."""
    roots, counts = list(trees), Counter[Tree]()
    pending = list(roots)
    while pending:
        tree = pending.pop()
        if tree not in counts:
            counts[tree] = 0
            pending.extend(tree.children)
    counts.update(roots)
    # Larger trees come first, so that the count of a tree is complete before its children's.
    for tree in sorted(counts, key=lambda part: -part.counts.total()):
        for child in tree.children:
            counts[child] += counts[tree]
    return counts
