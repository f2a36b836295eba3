"""Nests that read the same argument are brought together, so that loops over it can be one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from derivatrix.compiler.plan.steps import Buffer, LoopNest, Step
from derivatrix.compiler.plan.visit import buffers, names_made, names_read, read, written


@dataclass(frozen=True)
class _Uses:
    """A step, with the buffers that it touches and those that it may write to; the names of the
    scalars that it makes and reads; and the arguments of several axes that a nest reads."""

    step: Step
    touched: set[Buffer]
    written: set[Buffer]
    made: set[str]
    read: set[str]
    matrices: set[Buffer]


def with_readers_together(steps: Sequence[Step], fits: Callable[[Step, Step], bool]) -> list[Step]:
    """The steps, with those nests next to each other that read the same matrix, and can be one by
    `fits`, where what is between them can be done before or after both."""
    found = [_uses(step) for step in steps]
    for later in range(2, len(found)):
        second = found[later]
        for earlier in range(later - 2, -1, -1) if second.matrices else ():
            first = found[earlier]
            if first.matrices.isdisjoint(second.matrices):
                continue
            free, bound = _divided(first, found[earlier + 1 : later])
            if any(_are_ordered(uses, second) for uses in bound):
                continue
            if fits(first.step, second.step):
                found[earlier : later + 1] = [*free, first, second, *bound]
                break
    return [uses.step for uses in found]


def _divided(first: _Uses, between: Sequence[_Uses]) -> tuple[list[_Uses], list[_Uses]]:
    """Split the steps `between` into those that can run before `first` and those after it."""
    free: list[_Uses] = []
    bound = [first]
    for uses in between:
        (bound if any(_are_ordered(before, uses) for before in bound) else free).append(uses)
    return free, bound[1:]


def _are_ordered(first: _Uses, second: _Uses) -> bool:
    """Return whether one step needs to be done before the other."""
    return not (
        first.made.isdisjoint(second.read)
        and first.written.isdisjoint(second.touched)
        and first.touched.isdisjoint(second.written)
    )


def _uses(step: Step) -> _Uses:
    """What a step does; steps that are no nests may write to all that is not an argument."""
    touched = {*buffers(step)}
    if not isinstance(step, LoopNest):
        changed = {buffer for buffer in touched if buffer.role in ("output", "work")}
        return _Uses(step, touched, changed, set(), set(), set())
    matrices = {
        load.buffer
        for load in read(step)
        if len(load.indices) > 1 and load.buffer.role == "argument"
    }
    return _Uses(step, touched, written(step), {*names_made(step)}, {*names_read(step)}, matrices)
