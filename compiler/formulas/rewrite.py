"""Replacing parts of trees, and counting them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace

from derivatrix.compiler.formulas.tree import Tree


def mapped(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """Rebuild a tree with every child changed; return the tree itself if no child changes."""

    def new(value: object) -> object:
        if isinstance(value, Tree):
            return change(value)
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
