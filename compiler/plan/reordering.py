"""Reordering of steps: nests that read the same argument become neighbours, to be fused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from derivatrix.compiler.plan.steps import Buffer, LoopNest, Step
from derivatrix.compiler.plan.visit import buffers, loads, names_defined, names_read, targets


@dataclass(frozen=True)
class _Uses:
    """The data that a step uses: buffers that it touches, and may change; names of scalars that it
    defines, and reads; arguments of several axes that a nest reads."""

    step: Step
    touched: set[Buffer]
    changed: set[Buffer]
    names_defined: set[str]
    names_read: set[str]
    matrices: set[Buffer]


def with_readers_together(steps: Sequence[Step], fits: Callable[[Step, Step], bool]) -> list[Step]:
    """Move nests next to each other that read the same matrix and can be fused by `fits`, if the
    steps between them can run before or after both."""
    order = [_uses_of(step) for step in steps]
    for second_place in range(2, len(order)):
        second = order[second_place]
        for first_place in range(second_place - 2, -1, -1) if second.matrices else ():
            first = order[first_place]
            if first.matrices.isdisjoint(second.matrices):
                continue
            free, bound = _split_by_dependence(first, order[first_place + 1 : second_place])
            if any(_are_ordered(uses, second) for uses in bound):
                continue
            if fits(first.step, second.step):
                order[first_place : second_place + 1] = [*free, first, second, *bound]
                break
    return [uses.step for uses in order]


def _split_by_dependence(first: _Uses, between: Sequence[_Uses]) -> tuple[list[_Uses], list[_Uses]]:
    """Split the steps `between` into those that can run before `first` and those after it."""
    free: list[_Uses] = []
    bound = [first]
    for uses in between:
        (bound if any(_are_ordered(before, uses) for before in bound) else free).append(uses)
    return free, bound[1:]


def _are_ordered(first: _Uses, second: _Uses) -> bool:
    """Return whether one step needs to be done before the other."""
    return not (
        first.names_defined.isdisjoint(second.names_read)
        and first.changed.isdisjoint(second.touched)
        and first.touched.isdisjoint(second.changed)
    )


def _uses_of(step: Step) -> _Uses:
    """Collect the uses of a step; unless it is a nest, it may write to all that is no argument."""
    touched = {*buffers(step)}
    if not isinstance(step, LoopNest):
        changed = {buffer for buffer in touched if buffer.role in ("output", "work")}
        return _Uses(step, touched, changed, set(), set(), set())
    matrices = {
        load.buffer
        for load in loads(step)
        if len(load.indices) > 1 and load.buffer.role == "argument"
    }
    return _Uses(
        step, touched, targets(step), {*names_defined(step)}, {*names_read(step)}, matrices
    )
