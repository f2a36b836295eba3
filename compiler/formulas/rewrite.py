"""Trees with parts replaced, and how often parts occur."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace

from derivatrix.compiler.formulas.tree import Tree


def mapped(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """A tree of the same kind with every child changed; the tree itself where none is."""

    def new(value: object) -> object:
        if isinstance(value, Tree):
            return change(value)
        return tuple(map(new, value)) if isinstance(value, tuple) else value

    values = {part.name: getattr(tree, part.name) for part in fields(tree)}
    changed = {name: new(value) for name, value in values.items()}
    same = all(changed[name] is value or changed[name] == value for name, value in values.items())
    return tree if same else replace(tree, **changed)


def replaced(tree: Tree, table: Mapping[Tree, Tree]) -> Tree:
    """A tree with every part that is a key of `table` replaced by its value."""
    known: dict[Tree, Tree] = dict(table)

    def new(own: Tree) -> Tree:
        if own not in known:
            known[own] = mapped(own, new)
        return known[own]

    return new(tree)


def occurrences(trees: Iterable[Tree]) -> Counter[Tree]:
    """How often each part is written."""
    roots, counts = list(trees), Counter[Tree]()
    pending = list(roots)
    while pending:
        tree = pending.pop()
        if tree not in counts:
            counts[tree] = 0
            pending.extend(tree.children)
    counts.update(roots)
    for tree in sorted(counts, key=lambda own: -own.counts.total()):  # each before its parts
        for part in tree.children:
            counts[part] += counts[tree]
    return counts
