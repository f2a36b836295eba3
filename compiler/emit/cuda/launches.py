"""Launches of kernels: the loops of a nest, spread over the threads of a device.

The rounds of a nest's outer loops are its points, each computed by one thread; if they end in sums,
threads share the terms of each point. In nests of another form, one thread computes a point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
from sympy.logic.boolalg import Boolean

from derivatrix.compiler.plan.nominal_sizes import product
from derivatrix.compiler.plan.steps import (
    Accumulate,
    Buffer,
    Guard,
    Let,
    Load,
    Loop,
    LoopNest,
    Name,
    Require,
    Start,
    Statement,
    Store,
)
from derivatrix.compiler.plan.visit import names_added, names_read, rebuilt

MAX_SERIAL_TERMS = 32
"""Most terms of a sum that one thread adds up alone. The number of terms must be a constant."""

Loops = tuple[tuple[sympy.Symbol, sympy.Expr], ...]


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel.

    comment: the result in index notation.
    points: the loops that threads share; before: statements for each point, if `conditions` hold.
    terms: the loops of sums; inner: statements for each term, if `inner_conditions` hold, which
    accumulate `sums`; after: statements for each point that follow the sums.
    along: whether neighbouring entries in memory are terms of a sum, rather than points.
    """

    comment: str
    points: Loops
    before: tuple[Statement, ...]
    conditions: tuple[Boolean, ...] = ()
    terms: Loops = ()
    inner_conditions: tuple[Boolean, ...] = ()
    inner: tuple[Statement, ...] = ()
    sums: tuple[str, ...] = ()
    after: tuple[Statement, ...] = ()
    along: bool = False

    @property
    def statements(self) -> tuple[Statement, ...]:
        """All statements, in order."""
        return (*self.before, *self.inner, *self.after)


def launches(
    nest: LoopNest, escaping: frozenset[str], fresh: Callable[[], str]
) -> tuple[Launch, ...]:
    """Split a nest into launches, each of which is one kernel.

    escaping: scalars that later steps read. They are stored, as are sums that other kernels read.
    fresh: returns a new name for a sum.
    """
    launched: list[Launch] = []
    lets: dict[str, Let] = {}
    open_sums: list[str] = []
    serial: list[Statement] = []
    for statement in nest.body:
        match statement:
            case Let(name):
                lets[name] = statement
            case Start(name):
                open_sums.append(name)
            case Loop():
                launched += _single(nest.comment, serial)
                launched.append(_spread(nest.comment, statement, open_sums, fresh))
                serial, open_sums = [], []
            case _:
                serial.append(statement)
        if isinstance(statement, Let) and statement.name in escaping:
            serial.append(_keep(statement.name))
    # statements after sums that are single numbers need no launch of their own
    if launched and launched[-1].sums and not launched[-1].points:
        launched[-1] = replace(launched[-1], after=(*launched[-1].after, *serial))
    else:
        launched += _single(nest.comment, serial)
    return _with_scalars(launched, lets, escaping)


def stored_scalar(name: str) -> Load:
    """Return the entry in memory of a scalar that one kernel computes for others. No input has a
    name with an underscore in front."""
    return Load(Buffer(f"_kept_{name}", (sympy.S.One,)), (sympy.S.Zero,))


def _keep(name: str) -> Store:
    return Store(stored_scalar(name), Name(name), accumulate=False)


def _single(comment: str, statements: Sequence[Statement]) -> list[Launch]:
    """Launch one thread for statements, if there are any."""
    return [Launch(comment, (), tuple(statements))] if statements else []


def _spread(comment: str, loop: Loop, started: list[str], fresh: Callable[[], str]) -> Launch:
    """Launch a kernel for an outermost loop, and for the sums started before it."""
    points, body = chain((loop,))
    flat = _Flat(fresh, dict.fromkeys(started, 0))
    try:
        flat.walk((loop,), reducing=False)
    except Irregular:
        flat.terms = []
    size = product(tuple(extent for _, extent in flat.terms))
    if flat.terms and flat.points and size.is_Integer and size <= MAX_SERIAL_TERMS:
        return Launch(comment, tuple(flat.points), tuple(_serial(flat)))
    if not flat.terms:
        sums = tuple(name for name in started if name in set(names_added(loop)))
        return Launch(comment, points, (*map(Start, sums), *body), sums=sums)
    return Launch(
        comment,
        tuple(flat.points),
        tuple(flat.before),
        tuple(flat.conditions),
        tuple(flat.terms),
        tuple(flat.inner_conditions),
        tuple(flat.inner),
        tuple(dict.fromkeys(flat.sums)),
        tuple(flat.after),
        along=flat.along,
    )


def _serial(flat: _Flat) -> Sequence[Statement]:
    """Join the statements for each point, with sums as loops of one thread."""
    inner: tuple[Statement, ...] = tuple(flat.inner)
    if flat.inner_conditions:
        inner = (Guard(sympy.And(*flat.inner_conditions), inner),)
    for symbol, extent in reversed(flat.terms):
        inner = (Loop(symbol, extent, True, inner),)
    starts = map(Start, dict.fromkeys(flat.sums))
    body = (*flat.before, *starts, *inner, *flat.after)
    return (Guard(sympy.And(*flat.conditions), body),) if flat.conditions else body


def chain(statements: tuple[Statement, ...]) -> tuple[Loops, tuple[Statement, ...]]:
    """Split nested loops into the loops over points and the statements for each point."""
    *lets, final = statements
    if all(isinstance(statement, Let) for statement in lets):
        if isinstance(final, Loop) and not final.reduction:
            points, body = chain(final.body)
            return ((final.index, final.extent), *points), (*lets, *body)
        if isinstance(final, Guard):
            points, body = chain(final.body)
            return points, (*lets, Guard(final.condition, body))
    return (), statements


class Irregular(Exception):
    """A refusal of a nest that does not consist of points and sums."""


@dataclass
class _Flat:
    """A nest split into points and sums. started: sum -> number of loops over points around it."""

    fresh: Callable[[], str]
    started: dict[str, int]
    points: list[tuple[sympy.Symbol, sympy.Expr]] = field(default_factory=list)
    before: list[Statement] = field(default_factory=list)
    conditions: list[Boolean] = field(default_factory=list)
    terms: list[tuple[sympy.Symbol, sympy.Expr]] = field(default_factory=list)
    inner_conditions: list[Boolean] = field(default_factory=list)
    inner: list[Statement] = field(default_factory=list)
    sums: list[str] = field(default_factory=list)
    after: list[Statement] = field(default_factory=list)
    along: bool = False

    def walk(self, statements: Sequence[Statement], reducing: bool) -> None:
        """Assign statements to the parts of the nest; reducing: whether they run for each term."""
        statements = _without_inner_sum(statements) if reducing else statements
        for position, statement in enumerate(statements):
            is_last = position + 1 == len(statements)
            outside = self.after if self.terms else self.before
            match statement:
                case Let() | Require():
                    (self.inner if reducing else outside).append(statement)
                case Start(name) if not reducing:
                    self.started[name] = len(self.points)
                case Accumulate(name) if reducing and self.started.get(name) == len(self.points):
                    self.sums.append(name)
                    self.inner.append(statement)
                case Store():
                    self._store(statement, reducing, outside)
                case Guard(condition, body) if is_last:
                    (self.inner_conditions if reducing else self.conditions).append(condition)
                    self.walk(body, reducing)
                case Loop() if not reducing and statement.reduction and not self.terms:
                    self._loop(statement, reducing=True)
                case Loop() if is_last and (reducing or not statement.reduction):
                    self._loop(statement, reducing or statement.reduction)
                case _:
                    raise Irregular

    def _loop(self, loop: Loop, reducing: bool) -> None:
        (self.terms if loop.reduction else self.points).append((loop.index, loop.extent))
        self.along = loop.reduction
        self.walk(loop.body, reducing)

    def _store(self, store: Store, reducing: bool, outside: list[Statement]) -> None:
        """Assign a store. In sums, stores that add all terms to one entry become a sum."""
        if not reducing:
            outside.append(store)
            return
        indices = [symbol for symbol, _ in self.terms]
        if all(symbol in store.target.indices for symbol in indices):
            self.inner.append(store)
            return
        target_symbols = set().union(*(index.free_symbols for index in store.target.indices))
        if not store.accumulate or target_symbols & set(indices):
            raise Irregular
        name = self.fresh()
        self.sums.append(name)
        self.inner.append(Accumulate(name, store.value))
        self.after.append(Store(store.target, Name(name), accumulate=True))


def _without_inner_sum(statements: Sequence[Statement]) -> Sequence[Statement]:
    """Rewrite a sum that is added to an entry so that its terms are added to the entry."""
    match statements:
        case (
            Start(sum_name),
            Loop(reduction=True, body=(Accumulate(name, value),)) as loop,
            Store(target, Name(read), accumulate=True),
        ) if sum_name == name == read:
            return (replace(loop, body=(Store(target, value, accumulate=True),)),)
    return statements


def _with_scalars(
    nest_launches: list[Launch], lets: dict[str, Let], escaping: frozenset[str]
) -> tuple[Launch, ...]:
    """Add the scalars of a nest to the launches that read them. Each launch computes them again,
    but for sums of another launch, which are stored there and loaded."""
    owners = {name: owner for owner, launch in enumerate(nest_launches) for name in launch.sums}
    stored = {name for name in owners if name in escaping}
    completed = []
    for position, launch in enumerate(nest_launches):
        definitions = _closure(launch, lets)
        sums = {name for name in names_read([*definitions, *launch.statements]) if name in owners}
        foreign = {name for name in sums if owners[name] != position}
        stored |= foreign
        completed.append(_with_lets(launch, definitions, foreign))
    return tuple(
        replace(launch, after=(*launch.after, *(_keep(n) for n in launch.sums if n in stored)))
        for launch in completed
    )


def _with_lets(launch: Launch, definitions: list[Let], foreign: set[str]) -> Launch:
    """Add definitions of scalars before the statements of a launch; those that depend on its sums
    come after the sums. foreign: scalars that are loaded."""
    before: list[Let] = []
    after: list[Let] = []
    for let in definitions:
        computed_late = {*launch.sums, *(late.name for late in after)}
        (before if computed_late.isdisjoint(names_read(let)) else after).append(let)
    extended = replace(launch, before=(*before, *launch.before), after=(*after, *launch.after))
    return with_stored_scalars(extended, foreign)


def _closure(launch: Launch, lets: dict[str, Let]) -> list[Let]:
    """List the scalars of the nest that a launch reads, directly or indirectly, in order."""
    names: set[str] = set()
    pending = [name for name in names_read(launch.statements) if name in lets]
    while pending:
        name = pending.pop()
        if name not in names:
            names.add(name)
            pending += [operand for operand in names_read([lets[name]]) if operand in lets]
    return [let for name, let in lets.items() if name in names]


def defined(nest: LoopNest) -> Iterator[str]:
    """Yield the names of scalars at the top of a nest, which later steps can read."""
    for statement in nest.body:
        if isinstance(statement, Let | Start):
            yield statement.name


def with_stored_scalars(part: Any, names: Iterable[str]) -> Any:
    """Replace scalars `names` in a part of a plan by loads from their entries in memory."""
    places = {name: stored_scalar(name) for name in names}
    return rebuilt(part, lambda item: places.get(item.name) if isinstance(item, Name) else None)
