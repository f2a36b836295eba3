"""Traversal of plans: all parts of steps, statements and scalars, the entries and names that they
read and write, and rebuilding with changed parts."""

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
    Call,
    Clear,
    Fill,
    Let,
    Load,
    Loop,
    Name,
    Newton,
    Operate,
    Plan,
    Require,
    Size,
    Start,
    Store,
)


def walk(part: Any) -> Iterator[Any]:
    """Yield a part of a plan and all parts within, outermost first and in order: steps, statements,
    scalars, operands, buffers, and arithmetic of sizes and indices.

    The target of a store yields its buffer only, as no entry is read. Plans within are skipped."""
    pending = [part]
    while pending:
        item = pending.pop()
        if _is_entered(item.__class__):
            yield item
            fields = vars(item)
            if isinstance(item, Store | Clear):
                fields = {**fields, "target": item.target.buffer}
            pending += reversed(fields.values())
        elif isinstance(item, tuple | list):
            pending += reversed(item)
        elif isinstance(item, sympy.Basic):
            yield item


@cache
def _is_entered(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and not issubclass(kind, Plan)


def statement_count(plan: Plan) -> int:
    """Count a plan's steps, and the statements and loops within them."""
    kinds = Accumulate | Let | Loop | Start | Store
    return len(plan.steps) + sum(isinstance(part, kinds) for part in walk(plan.steps))


def can_fail(plan: Plan) -> bool:
    """Return whether a kernel, or one that it calls, can raise an error."""
    parts = (part for callee in plan.with_callees for part in walk(callee.steps))
    return any(isinstance(part, Require | Call | Newton) and bool(part.failure) for part in parts)


def buffers(part: Any) -> Iterator[Buffer]:
    """Yield the buffers in a part of a plan, but for plans within."""
    return (item for item in walk(part) if isinstance(item, Buffer))


def loops(part: Any) -> Iterator[Loop]:
    """Yield the loops in statements, outer ones first."""
    return (item for item in walk(part) if isinstance(item, Loop))


def stores(part: Any) -> Iterator[Store]:
    """Yield the statements that write to an entry of a buffer."""
    return (item for item in walk(part) if isinstance(item, Store))


def operations(part: Any) -> Iterator[Operate]:
    """Yield the operations on scalars."""
    return (item for item in walk(part) if isinstance(item, Operate))


def names_read(part: Any) -> Iterator[str]:
    """Yield the names of scalars that statements read."""
    return (item.name for item in walk(part) if isinstance(item, Name))


def names_defined(part: Any) -> Iterator[str]:
    """Yield the names of scalars that statements define."""
    return (item.name for item in walk(part) if isinstance(item, Let | Start))


def names_added(part: Any) -> Iterator[str]:
    """Yield the names of sums that statements add to."""
    return (item.name for item in walk(part) if isinstance(item, Accumulate))


def symbols(part: Any) -> set[sympy.Basic]:
    """Collect the sizes and loop indices in a part of a plan."""
    free_symbols = (item.free_symbols for item in walk(part) if isinstance(item, sympy.Basic))
    return set().union(*free_symbols)


def all_names(part: Any) -> set[str]:
    """Collect the names of all buffers, scalars, sizes and loop indices in a part of a plan."""
    places = [load.indices for load, _ in accesses(part)]
    names = (item.name for item in walk(part) if isinstance(item, Buffer | Name | Let | Start))
    return {*names, *map(str, symbols((part, places)))}


def accesses(part: Any) -> Iterator[tuple[Load, bool]]:
    """Yield the entries that statements read or write, and whether they are written."""
    for item in walk(part):
        if isinstance(item, Load):
            yield item, False
        elif isinstance(item, Store | Clear):
            yield item.target, True


def loads(part: Any) -> set[Load]:
    """Collect the entries that statements read."""
    return {item for item in walk(part) if isinstance(item, Load)}


def targets(part: Any) -> set[Buffer]:
    """Collect the buffers that statements write to, or that steps fill."""
    return {
        item.buffer if isinstance(item, Fill) else item.target.buffer
        for item in walk(part)
        if isinstance(item, Fill | Store | Clear)
    }


def rebuilt(part: Any, change: Callable[[Any], Any]) -> Any:
    """Rebuild a part of a plan: `change` is called for it and for parts within, outermost first,
    and returns a replacement, or None to rebuild the parts within."""
    changed = change(part)
    if changed is not None:
        return changed
    if isinstance(part, tuple):
        return tuple(rebuilt(item, change) for item in part)
    if dataclasses.is_dataclass(part) and not isinstance(part, Argument | Size | Plan):
        fields = {name: rebuilt(value, change) for name, value in vars(part).items()}
        return dataclasses.replace(part, **fields)  # type: ignore[type-var]
    return part


def renamed(part: Any, renames: Mapping[sympy.Basic, sympy.Basic]) -> Any:
    """Rename sizes or loop indices in a part of a plan."""
    return rebuilt(
        part, lambda item: item.xreplace(renames) if isinstance(item, sympy.Basic) else None
    )
