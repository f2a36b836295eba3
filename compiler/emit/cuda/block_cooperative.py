"""Fusion of steps along rows to one kernel, in which a group of threads shares each row.

Softmax, sums over a row and steps that read these sums read a row several times; a group finds it
in the cache. The derivatives of attention, between products of matrices, and of classifiers consist
of such steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy

from derivatrix.compiler.emit.cuda.launches import Launch, Loops, launches
from derivatrix.compiler.plan.fuse import independent
from derivatrix.compiler.plan.steps import (
    BlockCooperative,
    Buffer,
    Call,
    Gemm,
    Guard,
    Load,
    Loop,
    LoopNest,
    Operand,
    Statement,
    Step,
    Store,
)
from derivatrix.compiler.plan.visit import buffers, renamed


@dataclass(frozen=True)
class Softmax:
    """target = the softmax of the rows of `source`, or their logsumexp.

    points: the loops over rows; terms: the loop along a row. The last three fields are those of a
    `Launch`, and empty.
    """

    comment: str
    points: Loops
    terms: Loops
    source: Load
    target: Load
    conditions: tuple[()] = ()
    inner_conditions: tuple[()] = ()
    sums: tuple[()] = ()

    @property
    def normalised(self) -> bool:
        """True for the softmax, False for the logsumexp."""
        return len(self.target.indices) == len(self.source.indices)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """A store that reads the source and writes to the target."""
        return (Store(self.target, self.source, accumulate=False),)


Phase = Launch | Softmax


def as_phase(step: Step, fresh: Callable[[], str]) -> Phase | None:
    """Lower a step to a phase along rows; None for a step of another form. fresh: returns a new
    name for a sum."""
    match step:
        case LoopNest(_, (Loop(reduction=False),)):
            kernels = launches(step, frozenset(), fresh)
            return kernels[0] if len(kernels) == 1 else None
        case Call(comment, "rows.softmax" | "rows.logsumexp", (Operand() as x, Operand() as out)):
            return _softmax(comment, x, out)
    return None


def _softmax(comment: str, source: Operand, target: Operand) -> Softmax | None:
    shape, target_shape = source.buffer.shape, target.buffer.shape
    if source.index or target.index or source.shape[-1:] != shape[-1:]:
        return None
    if target_shape not in (shape, shape[:-1]):
        return None
    loops = tuple(
        (sympy.Symbol(f"row_{axis}", integer=True, nonnegative=True), size)
        for axis, size in enumerate(shape)
    )
    indices = tuple(symbol for symbol, _ in loops)
    entries = Load(source.buffer, indices), Load(target.buffer, indices[: len(target_shape)])
    return Softmax(comment, loops[:-1], loops[-1:], *entries)


def reduced_rows(phase: Phase | None) -> Loops:
    """Return the loops over the rows of a phase, if the threads of a group share the terms of each
    row; else ()."""
    if phase is None or not phase.terms or (isinstance(phase, Launch) and not phase.along):
        return ()
    return phase.points


def aligned(phase: Phase | None, rows: Loops) -> Phase | None:
    """Rename the loops of a phase to `rows`; None if it has no loops of these extents."""
    if phase is None or [size for _, size in phase.points[: len(rows)]] != [s for _, s in rows]:
        return None
    if phase.terms and (len(phase.points) > len(rows) or not reduced_rows(phase)):
        return None
    if len(phase.points) == len(rows) and any(
        isinstance(s, Loop | Guard) for s in phase.statements
    ):
        return None  # one thread of the group would run all rounds of the inner loop
    old = [symbol for symbol, _ in phase.points[: len(rows)]]
    new = [symbol for symbol, _ in rows]
    unused = [symbol for symbol in old if symbol not in new]
    renames = dict(zip(old, new, strict=True))
    renames |= dict(zip([symbol for symbol in new if symbol not in old], unused, strict=True))
    return renamed(phase, renames)


def phases(steps: Sequence[Step], fresh: Callable[[], str]) -> list[Phase]:
    """Lower steps to the phases of a group, with the same loops over rows."""
    lowered = [as_phase(step, fresh) for step in steps]
    rows = next(filter(None, map(reduced_rows, lowered)))
    for entry in lowered:
        if isinstance(entry, Launch):  # i, j of a nest read better than row_0 of a softmax
            rows = entry.points[: len(rows)]
    return [entry for entry in (aligned(entry, rows) for entry in lowered) if entry is not None]


def block_cooperative(steps: Sequence[Step]) -> list[Step]:
    """Join steps along the same rows to block-cooperative kernels; softmax and logsumexp of rows
    become such kernels also alone."""
    new_steps: list[Step] = []
    remaining = list(steps)
    while remaining:
        step = remaining.pop(0)
        rows = reduced_rows(as_phase(step, _some_sum))
        if not rows:
            new_steps.append(step)
            continue
        group = [step]
        while new_steps and _fits(new_steps[-1], group, rows, before=True):
            group.insert(0, new_steps.pop())
        products, step_count = _following(remaining, group, rows)
        is_joined = len(group) > 1 or isinstance(step, Call)
        new_steps += [*products, BlockCooperative(tuple(group)) if is_joined else step]
        remaining = remaining[step_count:]
    return new_steps


def _some_sum() -> str:
    return "s"


def _following(steps: Sequence[Step], group: list[Step], rows: Loops) -> tuple[list[Step], int]:
    """Add the following steps to a group that fit. Products of matrices between them that share no
    array with the group come before it. Returns these products, and how many steps were taken."""
    products: list[Step] = []
    skipped: list[Step] = []
    step_count = 0
    for position, step in enumerate(steps, 1):
        if _fits(step, group, rows, before=False):
            group.append(step)
            products += skipped
            skipped, step_count = [], position
        elif isinstance(step, Gemm) and not _common(step, group):
            skipped.append(step)
        else:
            break
    return products, step_count


def _common(step: Step, steps: Sequence[Step]) -> set[Buffer]:
    """Collect the arrays that a step shares with others, without arguments."""
    touched = {buffer for buffer in buffers(step) if buffer.role in ("work", "output")}
    return touched & set(buffers(tuple(steps)))


def _fits(step: Step, group: Sequence[Step], rows: Loops, before: bool) -> bool:
    """Return whether a step and a group's steps read only the same row of each other's results."""
    phase_of_step = aligned(as_phase(step, _some_sum), rows)
    if phase_of_step is None or not _common(step, group):
        return False
    for member in group:
        member_phase = aligned(as_phase(member, _some_sum), rows)
        assert member_phase is not None
        pair = (phase_of_step, member_phase) if before else (member_phase, phase_of_step)
        first, second = (entry.statements for entry in pair)
        if not all(independent(first, second, symbol) for symbol, _ in rows):
            return False
    return True
