"""How a nest's loops are spread over the threads of a device: as launches of kernels.

The rounds of a nest's outer loops are its points, each computed by one thread; where they end in
sums, threads share the terms of each. What has another form is computed by a thread a point.
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

SERIAL = 32
"""Sums of no more terms than this, a number known when the kernel is made, are not shared."""

Loops = tuple[tuple[sympy.Symbol, sympy.Expr], ...]


@dataclass(frozen=True)
class Launch:
    """One kernel.

    points: the loops that threads share. before: what is done at each point, if `conditions` hold.
    terms: the loops of sums; inner: what is done for each term, if `inner_conditions` hold, and
    accumulates `sums`. after: what comes then at each point. along: whether neighbours in memory
    are terms of a sum, rather than points.
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
        """All of them."""
        return (*self.before, *self.inner, *self.after)


def launches(
    nest: LoopNest, escaping: frozenset[str], fresh: Callable[[], str]
) -> tuple[Launch, ...]:
    """The kernels of a nest, in order.

    escaping: scalars that later steps read; these are `kept`, as are sums that other kernels read.
    fresh: makes names for sums.
    """
    found: list[Launch] = []
    lets: dict[str, Let] = {}
    started: list[str] = []
    alone: list[Statement] = []
    for statement in nest.body:
        match statement:
            case Let(name):
                lets[name] = statement
            case Start(name):
                started.append(name)
            case Loop():
                found += _single(nest.comment, alone)
                found.append(_spread(nest.comment, statement, started, fresh))
                alone, started = [], []
            case _:
                alone.append(statement)
        if isinstance(statement, Let) and statement.name in escaping:
            alone.append(_keep(statement.name))
    if found and found[-1].sums and not found[-1].points:
        found[-1] = replace(found[-1], after=(*found[-1].after, *alone))
    else:
        found += _single(nest.comment, alone)
    return _connected(found, lets, escaping)


def kept(name: str) -> Load:
    """Where a scalar is that one kernel leaves to others."""
    return Load(Buffer(f"kept_{name}", (sympy.S.One,)), (sympy.S.Zero,))


def _keep(name: str) -> Store:
    return Store(kept(name), Name(name), accumulate=False)


def _single(comment: str, statements: Sequence[Statement]) -> list[Launch]:
    """A kernel of one thread, if there is something to do."""
    return [Launch(comment, (), tuple(statements))] if statements else []


def _spread(comment: str, loop: Loop, started: list[str], fresh: Callable[[], str]) -> Launch:
    """The kernel of a loop at the top of a nest, and of the sums started before it."""
    points, body = chain((loop,))
    flat = _Flat(fresh, dict.fromkeys(started, 0))
    try:
        flat.walk((loop,), reducing=False)
    except Irregular:
        flat.terms = []
    size = product(tuple(extent for _, extent in flat.terms))
    if flat.terms and flat.points and size.is_Integer and size <= SERIAL:
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
    """What is done at each point, sums included."""
    inner: tuple[Statement, ...] = tuple(flat.inner)
    if flat.inner_conditions:
        inner = (Guard(sympy.And(*flat.inner_conditions), inner),)
    for symbol, extent in reversed(flat.terms):
        inner = (Loop(symbol, extent, True, inner),)
    starts = map(Start, dict.fromkeys(flat.sums))
    body = (*flat.before, *starts, *inner, *flat.after)
    return (Guard(sympy.And(*flat.conditions), body),) if flat.conditions else body


def chain(statements: tuple[Statement, ...]) -> tuple[Loops, tuple[Statement, ...]]:
    """The loops over points that everything is in, and what is done at each point."""
    *lets, last = statements
    if all(isinstance(statement, Let) for statement in lets):
        if isinstance(last, Loop) and not last.reduction:
            points, body = chain(last.body)
            return ((last.index, last.extent), *points), (*lets, *body)
        if isinstance(last, Guard):
            points, body = chain(last.body)
            return points, (*lets, Guard(last.condition, body))
    return (), statements


class Irregular(Exception):
    """The loops of a nest are not points and sums."""


@dataclass
class _Flat:
    """A nest as points and sums. started: sums, with the number of loops over points around."""

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
        """Sort statements in; `reducing`: whether they are repeated for each term."""
        for position, statement in enumerate(statements):
            last = position + 1 == len(statements)
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
                case Guard(condition, body) if last:
                    (self.inner_conditions if reducing else self.conditions).append(condition)
                    self.walk(body, reducing)
                case Loop() if not reducing and statement.reduction and not self.terms:
                    self._loop(statement, reducing=True)
                case Loop() if last and (reducing or not statement.reduction):
                    self._loop(statement, reducing or statement.reduction)
                case _:
                    raise Irregular

    def _loop(self, loop: Loop, reducing: bool) -> None:
        (self.terms if loop.reduction else self.points).append((loop.index, loop.extent))
        self.along = loop.reduction
        self.walk(loop.body, reducing)

    def _store(self, store: Store, reducing: bool, outside: list[Statement]) -> None:
        """Stores to an entry for each term stay; those that add to one entry become a sum."""
        if not reducing:
            outside.append(store)
            return
        indices = [symbol for symbol, _ in self.terms]
        if all(symbol in store.target.indices for symbol in indices):
            self.inner.append(store)
            return
        used = set().union(*(index.free_symbols for index in store.target.indices))
        if not store.accumulate or used & set(indices):
            raise Irregular
        name = self.fresh()
        self.sums.append(name)
        self.inner.append(Accumulate(name, store.value))
        self.after.append(Store(store.target, Name(name), accumulate=True))


def _connected(
    found: list[Launch], lets: dict[str, Let], escaping: frozenset[str]
) -> tuple[Launch, ...]:
    """The kernels, each with the scalars of the nest that it reads: computed again, or, where they
    are sums of another kernel, read from where that one keeps them."""
    owners = {name: owner for owner, launch in enumerate(found) for name in launch.sums}
    wanted = {name for name in owners if name in escaping}
    made = []
    for own, launch in enumerate(found):
        needed = _closure(launch, lets)
        sums = {name for name in names_read([*needed, *launch.statements]) if name in owners}
        foreign = {name for name in sums if owners[name] != own}
        wanted |= foreign
        made.append(_placed(launch, needed, foreign))
    return tuple(
        replace(launch, after=(*launch.after, *(_keep(n) for n in launch.sums if n in wanted)))
        for launch in made
    )


def _placed(launch: Launch, needed: list[Let], foreign: set[str]) -> Launch:
    """A kernel with scalars of its nest before its own statements; those that stand on its sums
    come after them."""
    own: list[Let] = []
    later: list[Let] = []
    for let in needed:
        late = {*launch.sums, *(each.name for each in later)}
        (own if late.isdisjoint(names_read(let)) else later).append(let)
    moved = replace(launch, before=(*own, *launch.before), after=(*later, *launch.after))
    return renamed(moved, foreign)


def _closure(launch: Launch, lets: dict[str, Let]) -> list[Let]:
    """The scalars of the nest that a kernel reads, directly or not, in order."""
    needed: set[str] = set()
    pending = [name for name in names_read(launch.statements) if name in lets]
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending += [other for other in names_read([lets[name]]) if other in lets]
    return [let for name, let in lets.items() if name in needed]


def defined(nest: LoopNest) -> Iterator[str]:
    """The names of the scalars that a nest computes for those that come later."""
    for statement in nest.body:
        if isinstance(statement, Let | Start):
            yield statement.name


def renamed(part: Any, names: Iterable[str]) -> Any:
    """Statements, or what has some, in which scalars that are kept are read from there."""
    places = {name: kept(name) for name in names}
    return rebuilt(part, lambda each: places.get(each.name) if isinstance(each, Name) else None)
