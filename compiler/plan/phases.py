"""Steps in phases: in each phase every thread computes its share of the rows, and all threads have
to be done with a phase before the next one starts.

A step is in the phase of those that it needs where it needs no more than its own share of what they
make, else in a later one. Sums that are scalars each thread makes for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import sympy

from derivatrix.compiler.plan.fuse import fuse
from derivatrix.compiler.plan.row_shares import PARTS, is_own, share, shareable, work, writes_rows
from derivatrix.compiler.plan.steps import Buffer, Clear, Guard, Loop, LoopNest, Statement, Step
from derivatrix.compiler.plan.visit import accesses, names_made, names_read, written
from derivatrix.templates.support.common.limits import MAX_WRITING_THREADS


@dataclass(frozen=True)
class Phases:
    """steps: what a thread does, phase by phase; work: the arrays that phases make for each other;
    gain: about how many operations the threads divide more than others, by the sizes."""

    steps: tuple[tuple[Step, ...], ...]
    work: tuple[Buffer, ...]
    gain: sympy.Expr


@dataclass(frozen=True)
class _Uses:
    """A step, and what it has to do with others.

    divided: whether each thread writes to rows of its share alone; steps that are not, one thread
    does. touched: the buffers that it reads or writes, each with whether it writes to them, and
    whether it touches no other rows than those of the share. made, read: the scalars that it makes
    and reads.
    """

    step: Step
    divided: bool
    touched: frozenset[tuple[Buffer, bool, bool]]
    made: frozenset[str]
    read: frozenset[str]

    @property
    def written(self) -> set[Buffer]:
        return {buffer for buffer, is_written, _ in self.touched if is_written}

    def waits(self, other: _Uses) -> bool | None:
        """Whether all threads have to be done with the other step before; None where the two steps
        are free of each other."""
        both = self.touched | other.touched
        met = {buffer for buffer, _, _ in self.touched} & {buffer for buffer, _, _ in other.touched}
        met &= self.written | other.written
        if met:
            others = any(not own for buffer, _, own in both if buffer in met)
            return others and (self.divided or other.divided)
        return None if other.made.isdisjoint(self.read) else False


def phased(steps: Sequence[Step]) -> Phases | None:
    """Steps that fill buffers or are loops, in phases; None where threads cannot share them."""
    made = dict.fromkeys(buffer for step in steps for buffer in sorted(written(step), key=str))
    shared = shareable(steps, made)
    found = [_uses(step, shared) for step in steps]
    if any(_is_apart(uses, number, found) for number, uses in enumerate(found)):
        return None
    phases = _grouped(found)
    return Phases(
        tuple(tuple(fuse([share(step, shared, {*made}) for step in phase])) for phase in phases),
        tuple(buffer for buffer in made if buffer.role == "work"),
        _gain(phases, shared),
    )


def _gain(phases: Sequence[Sequence[Step]], shared: set[Buffer]) -> sympy.Expr:
    """The operations that are divided, without those that one thread or every one does and those
    that there are because of the threads."""
    gain = sympy.S.Zero
    for step in chain.from_iterable(phases):
        takes = work(step)
        is_divided = written(step) & shared and not takes.has(PARTS)
        gain += takes if is_divided else -takes
    return sympy.expand(gain.xreplace({PARTS: sympy.Integer(MAX_WRITING_THREADS)}))


def _uses(step: Step, shared: set[Buffer]) -> _Uses:
    divided = written(step) <= shared
    if not isinstance(step, LoopNest):
        touched = frozenset((buffer, True, divided) for buffer in written(step))
        return _Uses(step, divided, touched, frozenset(), frozenset())
    touched = frozenset(_touched(step.body, divided))
    made = frozenset(names_made(step))
    return _Uses(step, divided, touched, made, frozenset(names_read(step)) - made)


def _touched(
    body: Sequence[Statement], divided: bool, row: Loop | None = None
) -> Iterator[tuple[Buffer, bool, bool]]:
    """What statements touch (see `_Uses`), which are within a loop over rows of a share, if any."""
    for statement in body:
        match statement:
            case Loop(_, _, _, inside):
                found = statement if divided and row is None and writes_rows(statement) else row
                yield from _touched(inside, divided, found)
            case Guard(_, inside):
                yield from _touched(inside, divided, row)
            case Clear(target) if divided and not target.indices:
                yield target.buffer, True, True
            case _:
                for load, is_written in accesses(statement):
                    yield load.buffer, is_written, is_own(load, row)


def _is_apart(uses: _Uses, number: int, found: Sequence[_Uses]) -> bool:
    """Whether a step cannot be shared: its rows need each other; others need scalars of it though
    it writes to buffers, too; or what scalars are made of changes, so that they cannot be made
    again."""
    others = [other for other in found if other is not uses]
    if uses.written:
        needs_others = uses.divided and uses.waits(uses)
        return bool(needs_others) or any(uses.made & other.read for other in others)
    return any(uses.waits(later) is not None for later in found[number + 1 :] if later.written)


def _grouped(found: Sequence[_Uses]) -> list[list[Step]]:
    """The steps phase by phase, each with the scalars that it needs."""
    numbers: list[int] = []
    for uses in found:
        waits = [
            number + waiting
            for other, number in zip(found, numbers, strict=False)
            if (waiting := uses.waits(other)) is not None
        ]
        numbers.append(max(waits, default=0))
    writes = [bool(uses.written) for uses in found]
    return [
        _with_scalars(found, [w and at == phase for w, at in zip(writes, numbers, strict=True)])
        for phase in sorted({at for w, at in zip(writes, numbers, strict=True) if w})
    ]


def _with_scalars(found: Sequence[_Uses], chosen: Sequence[bool]) -> list[Step]:
    """The chosen steps and those that make the scalars that they need."""
    steps: list[Step] = []
    needed: set[str] = set()
    for uses, is_chosen in zip(reversed(found), reversed(chosen), strict=True):
        if is_chosen or uses.made & needed:
            steps.insert(0, uses.step)
            needed |= uses.read
    return steps
