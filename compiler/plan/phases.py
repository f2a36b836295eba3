"""Steps in phases: threads share the rows of each phase, and all finish it before the next begins.

A step is in the phase of the steps that it depends on if it needs only its own rows of their
results, else in a later one. Every thread computes all scalar sums for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import sympy

from derivatrix.compiler.plan.fuse import fuse
from derivatrix.compiler.plan.row_shares import (
    PARTS,
    belongs_to_share,
    operation_count,
    shareable,
    thread_share,
    writes_rows,
)
from derivatrix.compiler.plan.steps import Buffer, Clear, Guard, Loop, LoopNest, Statement, Step
from derivatrix.compiler.plan.visit import accesses, names_made, names_read, targets
from derivatrix.templates.support.common.limits import MAX_WRITING_THREADS


@dataclass(frozen=True)
class Phases:
    """The steps of a thread, phase by phase.

    work_arrays: buffers that one phase fills for later ones.
    gain: estimated scalar operations that threads divide, less those that they do not.
    """

    steps: tuple[tuple[Step, ...], ...]
    work_arrays: tuple[Buffer, ...]
    gain: sympy.Expr


class _Access(NamedTuple):
    """An access to a buffer. in_share: whether it touches only rows of the thread's share."""

    buffer: Buffer
    is_written: bool
    in_share: bool


@dataclass(frozen=True)
class _Uses:
    """A step with its accesses and the scalars that it defines and reads.

    is_divided: whether each thread writes to rows of its share; one thread does all other steps.
    """

    step: Step
    is_divided: bool
    accesses: frozenset[_Access]
    defined_scalars: frozenset[str]
    read_scalars: frozenset[str]

    @property
    def written_buffers(self) -> set[Buffer]:
        return {access.buffer for access in self.accesses if access.is_written}

    def needs_barrier(self, earlier: _Uses) -> bool | None:
        """Return whether all threads must finish the `earlier` step before; None if the two steps
        are independent."""
        common = {access.buffer for access in self.accesses}
        common &= {access.buffer for access in earlier.accesses}
        common &= self.written_buffers | earlier.written_buffers
        if not common:
            return None if earlier.defined_scalars.isdisjoint(self.read_scalars) else False
        crosses_shares = any(
            access.buffer in common and not access.in_share
            for access in self.accesses | earlier.accesses
        )
        return crosses_shares and (self.is_divided or earlier.is_divided)


def phased(steps: Sequence[Step]) -> Phases | None:
    """Arrange fills and loop nests in phases; None if threads cannot share them."""
    buffers = dict.fromkeys(buffer for step in steps for buffer in sorted(targets(step), key=str))
    shared = shareable(steps, buffers)
    uses = [_uses(step, shared) for step in steps]
    if any(_is_unshareable(position, uses) for position in range(len(uses))):
        return None
    phases = _grouped(uses)
    shares = ([thread_share(step, shared, {*buffers}) for step in phase] for phase in phases)
    return Phases(
        tuple(tuple(fuse(share)) for share in shares),
        tuple(buffer for buffer in buffers if buffer.role == "work"),
        _gain(phases, shared),
    )


def _gain(phases: Sequence[Sequence[Step]], shared: set[Buffer]) -> sympy.Expr:
    """Estimate the operations that threads divide, less those of one thread or of every thread and
    those that combine the threads' results."""
    gain = sympy.S.Zero
    for step in chain.from_iterable(phases):
        ops = operation_count(step)
        is_divided = targets(step) & shared and not ops.has(PARTS)
        gain += ops if is_divided else -ops
    return sympy.expand(gain.xreplace({PARTS: sympy.Integer(MAX_WRITING_THREADS)}))


def _uses(step: Step, shared: set[Buffer]) -> _Uses:
    is_divided = targets(step) <= shared
    if not isinstance(step, LoopNest):
        fills = frozenset(_Access(buffer, True, is_divided) for buffer in targets(step))
        return _Uses(step, is_divided, fills, frozenset(), frozenset())
    defined = frozenset(names_made(step))
    scalars_read = frozenset(names_read(step)) - defined
    return _Uses(
        step, is_divided, frozenset(_accesses(step.body, is_divided)), defined, scalars_read
    )


def _accesses(
    body: Sequence[Statement], is_divided: bool, row: Loop | None = None
) -> Iterator[_Access]:
    """Yield the accesses of statements. row: the loop over rows of a share around them, if any."""
    for statement in body:
        match statement:
            case Loop(_, _, _, inside):
                is_row = is_divided and row is None and writes_rows(statement)
                yield from _accesses(inside, is_divided, statement if is_row else row)
            case Guard(_, inside):
                yield from _accesses(inside, is_divided, row)
            case Clear(target) if is_divided and not target.indices:
                yield _Access(target.buffer, True, True)
            case _:
                for load, is_written in accesses(statement):
                    yield _Access(load.buffer, is_written, belongs_to_share(load, row))


def _is_unshareable(position: int, uses: Sequence[_Uses]) -> bool:
    """Return whether a step cannot be shared: its rows depend on each other; it writes to buffers
    and defines scalars for other steps; or a later step overwrites buffers that its scalars are
    computed from, so that another phase cannot compute them again."""
    step = uses[position]
    if step.written_buffers:
        rows_depend = step.is_divided and step.needs_barrier(step)
        other_uses = (use for use in uses if use is not step)
        return bool(rows_depend) or any(step.defined_scalars & o.read_scalars for o in other_uses)
    writers = (later for later in uses[position + 1 :] if later.written_buffers)
    return any(step.needs_barrier(later) is not None for later in writers)


def _grouped(uses: Sequence[_Uses]) -> list[list[Step]]:
    """Group the steps by phase, each phase with the scalars that it reads."""
    phases: list[int] = []
    for step in uses:
        earliest = [
            phase + needs_barrier
            for earlier, phase in zip(uses, phases, strict=False)
            if (needs_barrier := step.needs_barrier(earlier)) is not None
        ]
        phases.append(max(earliest, default=0))
    writers = [
        phase if step.written_buffers else None for step, phase in zip(uses, phases, strict=True)
    ]
    return [
        _with_scalars(uses, [writer == phase for writer in writers])
        for phase in sorted({phase for phase in writers if phase is not None})
    ]


def _with_scalars(uses: Sequence[_Uses], selected: Sequence[bool]) -> list[Step]:
    """Return the selected steps and the steps that define the scalars that these read."""
    steps: list[Step] = []
    scalars: set[str] = set()
    for step, is_selected in zip(reversed(uses), reversed(selected), strict=True):
        if is_selected or step.defined_scalars & scalars:
            steps.insert(0, step.step)
            scalars |= step.read_scalars
    return steps
