"""Trees with parts replaced, and how often parts occur."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from derivatrix.compiler.formulas.tree import Tree


def children(tree: Tree) -> Iterator[Tree]:
    """The trees that a tree is built of."""
    for name in _names(tree):
        yield from _trees(getattr(tree, name))


_fields: dict[type[Tree], tuple[str, ...]] = {}


def _names(tree: Tree) -> tuple[str, ...]:
    """The names of a kind's fields, looked up once for each."""
    kind = type(tree)
    if kind not in _fields:
        _fields[kind] = tuple(part.name for part in fields(kind))
    return _fields[kind]


def _trees(value: object) -> Iterator[Tree]:
    if isinstance(value, Tree):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _trees(item)


def replaced(tree: Tree, table: Mapping[Tree, Tree]) -> Tree:
    """A tree with every part that is a key of `table` replaced by its value."""
    known: dict[Tree, Tree] = dict(table)

    def new(value: object) -> object:
        if isinstance(value, Tree):
            if value not in known:
                known[value] = rebuilt(value)
            return known[value]
        return tuple(map(new, value)) if isinstance(value, tuple) else value

    def rebuilt(own: Tree) -> Tree:
        values = {name: getattr(own, name) for name in _names(own)}
        changed = {name: new(value) for name, value in values.items()}
        same = all(
            changed[name] is value or changed[name] == value for name, value in values.items()
        )
        return own if same else replace(own, **changed)

    result = new(tree)
    assert isinstance(result, Tree)
    return result


def occurrences(trees: Iterator[Tree] | list[Tree]) -> Counter[Tree]:
    """How often each part is written."""
    counts: Counter[Tree] = Counter()
    pending = list(trees)
    while pending:
        tree = pending.pop()
        counts[tree] += 1
        pending.extend(children(tree))
    return counts
