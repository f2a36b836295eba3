"""Loop fusion: nests that follow one another share their outer loops where each round of one needs
no more of the other than the same round's entries, so that these are still in the cache."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import sympy

from derivatrix.compiler.plan.reordering import with_readers_together
from derivatrix.compiler.plan.steps import (
    Buffer,
    Clear,
    Fill,
    Guard,
    Let,
    Load,
    Loop,
    LoopNest,
    Statement,
    Step,
    Store,
)
from derivatrix.compiler.plan.visit import (
    accesses,
    loops,
    names_added,
    names_made,
    names_read,
    operations,
    read,
    rebuilt,
    renamed,
    stores,
    written,
)
from derivatrix.compiler.targets import cpu


def fuse(steps: Sequence[Step]) -> list[Step]:
    """The steps, with the loops of neighbours fused."""
    found: list[Step] = []
    for step in with_readers_together(
        steps, lambda first, second: _joined(first, second) is not None
    ):
        before = found[-1] if found else None
        joined = None
        if isinstance(before, Fill) and isinstance(step, LoopNest):
            cleared = Clear(Load(before.buffer, ()))
            joined = LoopNest(f"{before.buffer.name} = 0; {step.comment}", (cleared, *step.body))
        elif before is not None:
            joined = _joined(before, step)
        if joined is None:
            found.append(step)
        else:
            found[-1] = joined
    return [
        LoopNest(step.comment, _lowered(step.body, 0)) if isinstance(step, LoopNest) else step
        for step in found
    ]


def _lowered(body: tuple[Statement, ...], depth: int) -> tuple[Statement, ...]:
    """A body that starts by clearing a buffer, with that done in each round of its one loop for the
    entries that the round fills."""
    cleared, lets, loop = body[0], body[1:-1], body[-1]
    if not isinstance(cleared, Clear) or not isinstance(loop, Loop):
        return body
    target = cleared.target
    met = [load for load, _ in accesses(loop.body) if load.buffer == target.buffer]
    last = depth + 1 >= len(target.buffer.shape)  # a number has no axis
    if (
        last
        or not all(isinstance(statement, Let) for statement in lets)
        or (loop.start, loop.extent) != (0, target.buffer.shape[depth])
        or any(load.indices[depth] != loop.index for load in met)
        or (depth and not any(isinstance(part, Loop) for part in loop.body))
    ):
        return body
    inner = Clear(Load(target.buffer, (*target.indices, loop.index)))
    round_ = _lowered((inner, *loop.body), depth + 1)
    return (*lets, Loop(loop.index, loop.extent, loop.reduction, round_))


def _joined(first: Step, second: Step) -> LoopNest | None:
    """Two steps as one nest; None where they are no nests that can be one."""
    if not isinstance(first, LoopNest) or not isinstance(second, LoopNest):
        return None
    body = _sequence(first.body, second.body, outermost=True)
    if body is None and (buffer := _added_to(first, second)) is not None:
        cleared = Clear(Load(buffer, ()))
        body = _sequence((cleared, *rebuilt(first.body, _adding)), second.body, outermost=True)
    return None if body is None else LoopNest(f"{first.comment}; {second.comment}", body)


def _added_to(first: LoopNest, second: LoopNest) -> Buffer | None:
    """What the first nest fills and the second one only adds to, if both read the same larger
    array, which they can do together where both add to zero."""
    if len(met := {store.target.buffer for store in stores(first)}) != 1:
        return None
    (buffer,) = met
    given = [_read(nest) for nest in (first, second)]
    both = any(len(each.shape) > max(1, len(buffer.shape)) for each in given[0] & given[1])
    filled = not any(store.accumulate for store in stores(first))
    only = {(store.target.buffer, store.accumulate) for store in stores(second)} == {(buffer, True)}
    return buffer if both and filled and only and buffer not in given[0] | given[1] else None


def _read(part: Any) -> set[Buffer]:
    return {load.buffer for load in read(part)}


def _adding(part: Any) -> Store | None:
    """A store that adds to what it would fill, where a part is one."""
    return replace(part, accumulate=True) if isinstance(part, Store) else None


def _sequence(
    first: tuple[Statement, ...], second: tuple[Statement, ...], outermost: bool
) -> tuple[Statement, ...] | None:
    """Two bodies as one, the last loop of the first and the only one of the second becoming one;
    None where that cannot be."""
    *before, one = first
    *lets, other = second
    if not isinstance(one, Loop) or not isinstance(other, Loop):
        return None
    if not all(isinstance(statement, Let) for statement in lets):
        return None
    if _read(lets) & written(first) or {*names_added(one)} & {*names_read(second)}:
        return None
    loop = _fused(one, other, outermost)
    return None if loop is None else (*before, *lets, loop)


def _fused(one: Loop, other: Loop, outermost: bool) -> Loop | None:
    """One loop with the rounds of both, if they may be told in this order."""
    inner = [any(isinstance(part, Loop) for part in loop.body) for loop in (one, other)]
    if (one.start, one.extent) != (other.start, other.extent) or not (
        any(inner) if outermost else all(inner)
    ):
        return None
    if inner[0] != inner[1] and _is_vectorised(other if inner[0] else one):
        return None
    if one.index != other.index and one.index in {loop.index for loop in loops(other.body)}:
        return None
    body = renamed(other.body, {other.index: one.index})
    if not independent(one.body, body, one.index, _sums_in_memory(one.body, body)):
        return None
    together = _sequence(one.body, body, outermost=False) or _merged(one.body, body)
    if together is None:
        together = (*one.body, *body)
    return Loop(one.index, one.extent, one.reduction or other.reduction, together, one.start)


def _merged(
    first: tuple[Statement, ...], second: tuple[Statement, ...]
) -> tuple[Statement, ...] | None:
    """Two bodies as one with their innermost loops as one, where these read the same entries of a
    matrix."""
    if (around := _around(first)) is None or (behind := _around(second)) is None:
        return None
    (head, one, tail), (later, other, end) = around, behind
    inside = renamed(other.body, {other.index: one.index})
    entries = [
        {load for load in read(body) if len(load.indices) > 1} for body in (one.body, inside)
    ]
    ahead = (*later, *inside)
    made = {*names_added(one), *names_made(tail)}
    writes = [written(body) for body in ((one, *tail), ahead)]
    if (
        (one.start, one.extent) != (other.start, other.extent)
        or not entries[0] & entries[1]
        or _is_vectorised(one)
        or _is_vectorised(other)
        or made & {*names_read(ahead)}
        or writes[0] & _read(ahead)
        or writes[1] & _read((one, *tail))
        or (writes[0] & writes[1]) - _sums_in_memory((one, *tail), inside)
    ):
        return None
    loop = Loop(
        one.index, one.extent, one.reduction or other.reduction, (*one.body, *inside), one.start
    )
    return (*head, *later, loop, *tail, *end)


def _around(
    body: tuple[Statement, ...],
) -> tuple[tuple[Statement, ...], Loop, tuple[Statement, ...]] | None:
    """The only loop of a body, if there is one and none in it, with what is before and after."""
    places = [place for place, part in enumerate(body) if isinstance(part, Loop | Guard)]
    if len(places) != 1:
        return None
    loop = body[places[0]]
    if not isinstance(loop, Loop) or any(isinstance(part, Loop | Guard) for part in loop.body):
        return None
    return body[: places[0]], loop, body[places[0] + 1 :]


def _is_vectorised(loop: Loop) -> bool:
    """Return whether `loop` calls vectorised functions, which merit a loop of their own."""
    return any(each.operator in cpu.SCALARS for each in operations(loop))


def _sums_in_memory(*bodies: Sequence[Statement]) -> set[Buffer]:
    """What is added to only, in any order."""
    found = {(store.target.buffer, store.accumulate) for store in stores(bodies)}
    return {buffer for buffer, adds in found if adds and (buffer, False) not in found} - _read(
        bodies
    )


def independent(
    first: Sequence[Statement],
    second: Sequence[Statement],
    index: sympy.Symbol,
    but: Collection[Buffer] = (),
) -> bool:
    """Whether rounds of different `index` do not meet: what one body writes and the other one
    reads or writes, `but` for some buffers, has `index` itself at one and the same axis."""
    met = [list(accesses(first)), list(accesses(second))]
    for buffer in {load.buffer for load, _ in met[0]}.difference(but):
        own = [[a for a in part if a[0].buffer == buffer] for part in met]
        both = [*own[0], *own[1]]
        if not own[1] or not any(is_written for _, is_written in both):
            continue
        axes = range(len(buffer.shape))
        if not any(all(load.indices[axis] == index for load, _ in both) for axis in axes):
            return False
    return True
