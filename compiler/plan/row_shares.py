"""Steps that several threads divide by the rows of what they write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sympy

from derivatrix.compiler.plan.nominal_sizes import product
from derivatrix.compiler.plan.sample_axis import OPERATION
from derivatrix.compiler.plan.steps import (
    Accumulate,
    Buffer,
    Clear,
    Fill,
    Gemm,
    Guard,
    Let,
    Load,
    Loop,
    LoopNest,
    Operand,
    Scalar,
    Start,
    Statement,
    Step,
    Store,
)
from derivatrix.compiler.plan.straight_line import CHEAP
from derivatrix.compiler.plan.visit import (
    accesses,
    names_added,
    names_made,
    operations,
    rebuilt,
    written,
)

PART = sympy.Symbol("part", integer=True, nonnegative=True)
PARTS = sympy.Symbol("parts", integer=True, positive=True)
ROW = sympy.Symbol("row", integer=True, nonnegative=True)
"""The share of a thread, the number of shares, and the index of a row."""
FUNCTION = 10
"""The operations that a function of numbers takes, about."""


class border(sympy.Function):
    """Where a part of a length starts (see `templates.support.cpu.parts`)."""


# What steps do


def divisible(step: Step, shared: set[Buffer]) -> bool:
    """Whether every round of some loops of a step writes a row of what is shared, or whether the
    step writes nothing of that."""
    if not isinstance(step, LoopNest) or not written(step) & shared:
        return True
    return written(step) <= shared and all(map(_by_rows, step.body))


def _by_rows(statement: Statement) -> bool:
    """Return whether all that a statement writes is within loops over rows."""
    match statement:
        case Let() | Start() | Accumulate():
            return True
        case Clear(target):
            return target.indices in ((), (PART,))
        case Loop(_, _, _, body):
            return writes_rows(statement) or all(map(_by_rows, body))
    return False


def writes_rows(loop: Loop) -> bool:
    """Return whether the rounds of a loop write a row each, or to what is the thread's own."""
    places = [load for load, is_written in accesses(loop.body) if is_written]
    rows_only = all(is_own(load, loop) for load in places)
    return bool(places) and rows_only and {*names_added(loop.body)} <= {*names_made(loop.body)}


def is_own(load: Load, row: Loop | None) -> bool:
    """Whether an entry belongs to one share alone: in a loop over rows of a share, if any."""
    if load.indices[:1] == (PART,):
        return True
    return (
        row is not None
        and load.indices[:1] == (row.index,)
        and load.buffer.shape[:1] == (row.extent,)
    )


def shareable(steps: Sequence[Step], made: Iterable[Buffer]) -> set[Buffer]:
    """Those of the buffers that steps make whose rows threads can share: what is written together
    with something that is not shared, is not either."""
    shared = {buffer for buffer in made if buffer.shape}
    while bound := {b for s in steps if not divisible(s, shared) for b in written(s) & shared}:
        shared -= bound
    return shared


# Work


def work(step: Step) -> sympy.Expr:
    """About how many operations it takes."""
    match step:
        case LoopNest(_, body):
            return sympy.Add(*map(_operations, body))
        case Gemm():
            (m, k), (_, n) = step.left.shape[-2:], step.right.shape[-2:]
            return product((*(extent for _, extent in step.batch), m, k, n))
        case Fill(buffer):
            return product(buffer.shape)
    operands = (part for part in vars(step).get("arguments", ()) if isinstance(part, Operand))
    return OPERATION * sympy.Add(*(product(operand.buffer.shape) for operand in operands))


def _operations(statement: Statement) -> sympy.Expr:
    """About how many operations a statement takes."""
    match statement:
        case Loop(_, extent, _, body):
            return extent * sympy.Add(*map(_operations, body))
        case Guard(condition, body) if isinstance(condition, sympy.Basic):
            return sympy.Add(*map(_operations, body))  # what depends on numbers is rarely done
        case Clear(target):
            return product(target.buffer.shape[len(target.indices) :])
        case Let(_, value) | Accumulate(_, value):
            return sympy.Integer(_count(value))
        case Store(_, value, _):
            return sympy.Integer(1 + _count(value))
    return sympy.S.Zero


def _count(value: Scalar) -> int:
    return sum(1 if each.operator in CHEAP else FUNCTION for each in operations(value))


# A share


def share(step: Step, shared: set[Buffer], owned: set[Buffer]) -> Step:
    """What one of `PARTS` threads does: its rows of what is `shared`; the first thread all of what
    else is `owned` together; each one what is its own."""
    match step:
        case Fill(buffer) if buffer in owned:
            clear = Clear(Load(buffer, ()))
            return share(LoopNest(f"{buffer.name} = 0", (clear,)), shared, owned)
        case LoopNest(comment, body) if written(step) & shared:
            return LoopNest(comment, rebuilt(body, _some_rows))
        case LoopNest(comment, body) if written(step) & owned:
            return LoopNest(comment, (Guard(sympy.Eq(PART, 0), body),))
    return step


def _some_rows(part: Any) -> Any:
    """What a thread does of a loop over rows; None for what is no such loop."""
    match part:
        case Clear(target) if not target.indices:
            inner = Clear(Load(target.buffer, (ROW,)))
            return _some_rows(Loop(ROW, target.buffer.shape[0], False, (inner,)))
        case Loop(index, extent, reduction, body) if writes_rows(part):
            start, stop = (border(extent, PART + more, PARTS) for more in (0, 1))
            return Loop(index, stop, reduction, body, start)
    return None
