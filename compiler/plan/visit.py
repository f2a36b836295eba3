"""The one way through plans: all parts of steps, statements and scalars, and what these read and
write; and the same parts with some changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import sympy

from derivatrix.compiler.plan.steps import (
    Accumulate,
    Argument,
    Buffer,
    Clear,
    Fill,
    Let,
    Load,
    Loop,
    Name,
    Operate,
    Plan,
    Size,
    Start,
    Store,
)


def walk(part: Any) -> Iterator[Any]:
    """A part of a plan and all that it is made of, outermost first and in order: steps, statements,
    the scalars that these compute with, operands, buffers, and arithmetic of sizes and indices. Of
    what is written to it is the buffer alone, as no entry is read there; plans within are not
    entered."""
    pending = [part]
    while pending:
        each = pending.pop()
        if _is_entered(each.__class__):
            yield each
            inner = vars(each)
            if isinstance(each, Store | Clear):
                inner = {**inner, "target": each.target.buffer}
            pending += reversed(inner.values())
        elif isinstance(each, tuple | list):
            pending += reversed(each)
        elif isinstance(each, sympy.Basic):
            yield each


@cache
def _is_entered(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and not issubclass(kind, Plan)


def statement_count(plan: Plan) -> int:
    """Count a plan's steps, and the statements and loops within them."""
    kinds = Accumulate | Let | Loop | Start | Store
    return len(plan.steps) + sum(isinstance(part, kinds) for part in walk(plan.steps))


def buffers(part: Any) -> Iterator[Buffer]:
    """The buffers that a part of a plan mentions, but for plans within it."""
    return (each for each in walk(part) if isinstance(each, Buffer))


def loops(part: Any) -> Iterator[Loop]:
    """The loops of statements, outer ones first."""
    return (each for each in walk(part) if isinstance(each, Loop))


def stores(part: Any) -> Iterator[Store]:
    """The statements that write to an entry of a buffer."""
    return (each for each in walk(part) if isinstance(each, Store))


def operations(part: Any) -> Iterator[Operate]:
    """The operations that statements do on scalars."""
    return (each for each in walk(part) if isinstance(each, Operate))


def names_read(part: Any) -> Iterator[str]:
    """The names of scalars that statements read."""
    return (each.name for each in walk(part) if isinstance(each, Name))


def names_made(part: Any) -> Iterator[str]:
    """The names of scalars that statements make."""
    return (each.name for each in walk(part) if isinstance(each, Let | Start))


def names_added(part: Any) -> Iterator[str]:
    """The names of sums that statements add to."""
    return (each.name for each in walk(part) if isinstance(each, Accumulate))


def symbols(part: Any) -> set[sympy.Basic]:
    """The sizes and loop indices that a part of a plan computes with."""
    found = (each.free_symbols for each in walk(part) if isinstance(each, sympy.Basic))
    return set().union(*found)


def all_names(part: Any) -> set[str]:
    """The names of all buffers, scalars, sizes and loop indices in a part of a plan."""
    places = [load.indices for load, _ in accesses(part)]
    named = (each.name for each in walk(part) if isinstance(each, Buffer | Name | Let | Start))
    return {*named, *map(str, symbols((part, places)))}


def accesses(part: Any) -> Iterator[tuple[Load, bool]]:
    """The entries that statements read or write, and whether they are written."""
    for each in walk(part):
        if isinstance(each, Load):
            yield each, False
        elif isinstance(each, Store | Clear):
            yield each.target, True


def read(part: Any) -> set[Load]:
    """The entries that statements read."""
    return {each for each in walk(part) if isinstance(each, Load)}


def written(part: Any) -> set[Buffer]:
    """The buffers that loops write to, or that are filled."""
    return {
        each.buffer if isinstance(each, Fill) else each.target.buffer
        for each in walk(part)
        if isinstance(each, Fill | Store | Clear)
    }


def rebuilt(part: Any, change: Callable[[Any], Any]) -> Any:
    """A part of a plan with what `change` makes of the parts of it, outermost first; None: it stays
    as it is, but for what it is made of."""
    changed = change(part)
    if changed is not None:
        return changed
    if isinstance(part, tuple):
        return tuple(rebuilt(each, change) for each in part)
    if dataclasses.is_dataclass(part) and not isinstance(part, Argument | Size | Plan):
        fields = {name: rebuilt(value, change) for name, value in vars(part).items()}
        return dataclasses.replace(part, **fields)  # type: ignore[type-var]
    return part


def renamed(part: Any, renames: Mapping[sympy.Basic, sympy.Basic]) -> Any:
    """A part of a plan with sizes or loop indices renamed."""
    return rebuilt(
        part, lambda each: each.xreplace(renames) if isinstance(each, sympy.Basic) else None
    )
