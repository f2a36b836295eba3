"""What steps and statements read and write."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from derivatrix.compiler.plan.steps import (
    Accumulate,
    Buffer,
    Clear,
    Guard,
    Let,
    Load,
    Loop,
    Name,
    Number,
    Operate,
    Plan,
    Require,
    Scalar,
    Start,
    Statement,
    Store,
    Test,
)


def buffers(part: Any) -> Iterator[Buffer]:
    """The buffers that a part of a plan mentions, but for plans within it."""
    if isinstance(part, Buffer):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from buffers(item)
    elif dataclasses.is_dataclass(part) and not isinstance(part, Plan):
        for field in dataclasses.fields(part):
            yield from buffers(getattr(part, field.name))


def scalars(part: Any) -> Iterator[Scalar]:
    """The scalars that statements compute with, and those that these are made of."""
    match part:
        case Let(_, value) | Accumulate(_, value) | Store(_, value, _) | Require(value, _):
            yield from scalars(value)
        case Loop(_, _, _, inner) | Guard(_, inner):
            yield from scalars(inner)
        case tuple() | list():
            for item in part:
                yield from scalars(item)
        case Operate(_, operands):
            yield part
            yield from scalars(operands)
        case Name() | Number() | Load() | Test():
            yield part


def names_read(part: Any) -> Iterator[str]:
    """The names of scalars that statements read."""
    return (scalar.name for scalar in scalars(part) if isinstance(scalar, Name))


def operations(part: Any) -> Iterator[Operate]:
    """The operations that statements do on scalars."""
    return (scalar for scalar in scalars(part) if isinstance(scalar, Operate))


def names_made(body: Iterable[Statement]) -> Iterator[str]:
    """The names of scalars that statements make."""
    for statement in body:
        match statement:
            case Let(name, _) | Start(name):
                yield name
            case Loop(_, _, _, inside) | Guard(_, inside):
                yield from names_made(inside)


def loops(body: Iterable[Statement]) -> Iterator[Loop]:
    """The loops of statements, outer ones first."""
    for statement in body:
        if isinstance(statement, Loop):
            yield statement
        if isinstance(statement, Loop | Guard):
            yield from loops(statement.body)


def accesses(part: Any) -> Iterator[tuple[Load, bool]]:
    """The entries that statements read or write, and whether they are written."""
    match part:
        case Load():
            yield part, False
        case Operate(_, operands):
            yield from accesses(operands)
        case Let(_, value) | Accumulate(_, value):
            yield from accesses(value)
        case Require(condition, _):
            yield from accesses(condition)
        case Clear(target):
            yield target, True
        case Store(target, value, _):
            yield target, True
            yield from accesses(value)
        case Loop(_, _, _, body) | Guard(_, body):
            yield from accesses(body)
        case tuple() | list():
            for item in part:
                yield from accesses(item)
