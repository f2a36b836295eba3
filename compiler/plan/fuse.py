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
    loads,
    names_added,
    names_defined,
    names_read,
    operations,
    rebuilt,
    renamed,
    stores,
    targets,
)
from derivatrix.compiler.targets import cpu


def fuse(steps: Sequence[Step]) -> list[Step]:
    """Fuse the loops of neighbouring nests."""
    fused_steps: list[Step] = []
    for step in with_readers_together(
        steps, lambda first, second: _fused_nests(first, second) is not None
    ):
        previous = fused_steps[-1] if fused_steps else None
        nest = None
        if isinstance(previous, Fill) and isinstance(step, LoopNest):
            cleared = Clear(Load(previous.buffer, ()))
            nest = LoopNest(f"{previous.buffer.name} = 0; {step.comment}", (cleared, *step.body))
        elif previous is not None:
            nest = _fused_nests(previous, step)
        if nest is None:
            fused_steps.append(step)
        else:
            fused_steps[-1] = nest
    return [
        LoopNest(step.comment, _lowered(step.body, 0)) if isinstance(step, LoopNest) else step
        for step in fused_steps
    ]


def _lowered(body: tuple[Statement, ...], depth: int) -> tuple[Statement, ...]:
    """Move the clearing of a buffer, with which a body starts, into the body's only loop: each
    round clears the entries that it fills, which are then in the cache.

    A block is cleared as fast as by one memset. So a loop without loops within leaves the clearing
    of its block before it."""
    cleared, lets, loop = body[0], body[1:-1], body[-1]
    if not isinstance(cleared, Clear) or not isinstance(loop, Loop):
        return body
    target = cleared.target
    entries = [load for load, _ in accesses(loop.body) if load.buffer == target.buffer]
    is_last_axis = depth + 1 >= len(target.buffer.shape)  # a number has no axis
    if (
        is_last_axis
        or not all(isinstance(statement, Let) for statement in lets)
        or (loop.start, loop.extent) != (0, target.buffer.shape[depth])
        or any(load.indices[depth] != loop.index for load in entries)
        or (depth and not any(isinstance(part, Loop) for part in loop.body))
    ):
        return body
    inner = Clear(Load(target.buffer, (*target.indices, loop.index)))
    round_ = _lowered((inner, *loop.body), depth + 1)
    return (*lets, Loop(loop.index, loop.extent, loop.reduction, round_))


def _fused_nests(first: Step, second: Step) -> LoopNest | None:
    """Fuse two steps to one nest; None unless they are nests that can be fused."""
    if not isinstance(first, LoopNest) or not isinstance(second, LoopNest):
        return None
    body = _fused_bodies(first.body, second.body, outermost=True)
    if body is None and (buffer := _accumulator(first, second)) is not None:
        cleared = Clear(Load(buffer, ()))
        additions = rebuilt(
            first.body, lambda p: replace(p, accumulate=True) if isinstance(p, Store) else None
        )
        body = _fused_bodies((cleared, *additions), second.body, outermost=True)
    return None if body is None else LoopNest(f"{first.comment}; {second.comment}", body)


def _accumulator(first: LoopNest, second: LoopNest) -> Buffer | None:
    """Find a buffer that the first nest fills and the second one adds to, if both read the same
    larger array: when the first nest adds to zeros instead, one loop reads the array for both."""
    if len(stored := {store.target.buffer for store in stores(first)}) != 1:
        return None
    (buffer,) = stored
    buffers_read = [_buffers_read(nest) for nest in (first, second)]
    shared = buffers_read[0] & buffers_read[1]
    share_matrix = any(len(array.shape) > max(1, len(buffer.shape)) for array in shared)
    filled = not any(store.accumulate for store in stores(first))
    writes = {(store.target.buffer, store.accumulate) for store in stores(second)}
    only_adds = writes == {(buffer, True)}
    is_read = buffer in buffers_read[0] | buffers_read[1]
    return buffer if share_matrix and filled and only_adds and not is_read else None


def _buffers_read(part: Any) -> set[Buffer]:
    return {load.buffer for load in loads(part)}


def _fused_bodies(
    first: tuple[Statement, ...], second: tuple[Statement, ...], outermost: bool
) -> tuple[Statement, ...] | None:
    """Fuse two bodies: the last loop of the first body and the only loop of the second one become
    one loop. None if the second body cannot run together with that loop."""
    *before, first_loop = first
    *lets, second_loop = second
    if not isinstance(first_loop, Loop) or not isinstance(second_loop, Loop):
        return None
    if not all(isinstance(statement, Let) for statement in lets):
        return None
    if _buffers_read(lets) & targets(first) or {*names_added(first_loop)} & {*names_read(second)}:
        return None
    loop = _fused_loops(first_loop, second_loop, outermost)
    return None if loop is None else (*before, *lets, loop)


def _fused_loops(first: Loop, second: Loop, outermost: bool) -> Loop | None:
    """Fuse two loops whose rounds are independent, but for the round of the same index."""
    nested = [any(isinstance(part, Loop) for part in loop.body) for loop in (first, second)]
    if (first.start, first.extent) != (second.start, second.extent) or not (
        any(nested) if outermost else all(nested)
    ):
        return None
    if nested[0] != nested[1] and _is_vectorised(second if nested[0] else first):
        return None  # LLVM makes vector code of innermost loops alone
    # swapped, as a loop within the second one may have the index of the first
    body = renamed(second.body, {second.index: first.index, first.index: second.index})
    if not independent(first.body, body, first.index, _sums_in_memory(first.body, body)):
        return None
    rounds = _fused_bodies(first.body, body, outermost=False)
    rounds = rounds or _fused_inner_loops(first.body, body) or (*first.body, *body)
    reduction = first.reduction or second.reduction
    return replace(first, reduction=reduction, body=rounds)


def _fused_inner_loops(
    first: tuple[Statement, ...], second: tuple[Statement, ...]
) -> tuple[Statement, ...] | None:
    """Fuse two bodies whose innermost loops read the same entries of a matrix."""
    parts = [_split_at_loop(body) for body in (first, second)]
    if parts[0] is None or parts[1] is None:
        return None
    (head, first_loop, tail), (second_head, second_loop, second_tail) = parts[0], parts[1]
    second_body = renamed(second_loop.body, {second_loop.index: first_loop.index})
    entries = [
        {load for load in loads(b) if len(load.indices) > 1} for b in (first_loop.body, second_body)
    ]
    ahead = (*second_head, *second_body)
    defined = {*names_added(first_loop), *names_defined(tail)}
    writes = [targets(body) for body in ((first_loop, *tail), ahead)]
    if (
        (first_loop.start, first_loop.extent) != (second_loop.start, second_loop.extent)
        or not entries[0] & entries[1]
        or _is_vectorised(first_loop)
        or _is_vectorised(second_loop)
        or defined & {*names_read(ahead)}
        or writes[0] & _buffers_read(ahead)
        or writes[1] & _buffers_read((first_loop, *tail))
        or (writes[0] & writes[1]) - _sums_in_memory((first_loop, *tail), second_body)
    ):
        return None
    reduction = first_loop.reduction or second_loop.reduction
    loop = replace(first_loop, reduction=reduction, body=(*first_loop.body, *second_body))
    return (*head, *second_head, loop, *tail, *second_tail)


def _split_at_loop(
    body: tuple[Statement, ...],
) -> tuple[tuple[Statement, ...], Loop, tuple[Statement, ...]] | None:
    """Split a body into the statements before, the only loop, and those after it; None unless the
    body has one loop, without a loop or guard within."""
    places = [place for place, part in enumerate(body) if isinstance(part, Loop | Guard)]
    if len(places) != 1:
        return None
    loop = body[places[0]]
    if not isinstance(loop, Loop) or any(isinstance(part, Loop | Guard) for part in loop.body):
        return None
    return body[: places[0]], loop, body[places[0] + 1 :]


def _is_vectorised(loop: Loop) -> bool:
    """Return whether `loop` calls vectorised functions. A loop of their own made a Hessian-vector
    product of logistic regression 1.4 times as fast."""
    return any(operation.operator in cpu.SCALARS for operation in operations(loop))


def _sums_in_memory(*bodies: Sequence[Statement]) -> set[Buffer]:
    """Collect the buffers that statements only add to: the order of rounds does not matter."""
    written_to = {(store.target.buffer, store.accumulate) for store in stores(bodies)}
    filled = {buffer for buffer, adds in written_to if not adds}
    return {buffer for buffer, _ in written_to} - filled - _buffers_read(bodies)


def independent(
    first: Sequence[Statement],
    second: Sequence[Statement],
    index: sympy.Symbol,
    but: Collection[Buffer] = (),
) -> bool:
    """Return whether rounds of different `index` touch different entries: each buffer that one body
    writes and the other touches, except those in `but`, has `index` itself at one axis."""
    touches = [list(accesses(first)), list(accesses(second))]
    for buffer in {load.buffer for load, _ in touches[0]}.difference(but):
        touched = [[a for a in body_touches if a[0].buffer == buffer] for body_touches in touches]
        all_touches = [*touched[0], *touched[1]]
        if not touched[1] or not any(is_written for _, is_written in all_touches):
            continue
        axes = range(len(buffer.shape))
        if not any(all(load.indices[axis] == index for load, _ in all_touches) for axis in axes):
            return False
    return True
