"""Steps that several threads divide by the rows of what they write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sympy

from derivatrix.compiler.plan.nominal_sizes import product
from derivatrix.compiler.plan.sample_axis import OPS_PER_VECTOR_OP_ENTRY
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
    targets,
)

PART = sympy.Symbol("part", integer=True, nonnegative=True)
"""The number of a thread's share."""
PARTS = sympy.Symbol("parts", integer=True, positive=True)
"""The number of shares."""
ROW = sympy.Symbol("row", integer=True, nonnegative=True)
"""The index of a row."""
OPS_PER_FUNCTION = 10
"""Cost of a function of numbers, such as exp, in scalar operations."""


class border(sympy.Function):
    """The first row of a part: border(length, part, parts) (see `templates.support.cpu.parts`)."""


# Rows that steps write


def is_divisible(step: Step, shared: set[Buffer]) -> bool:
    """Return whether `step` writes to `shared` buffers only in loops over their rows, or not at
    all."""
    if not isinstance(step, LoopNest) or not targets(step) & shared:
        return True
    return targets(step) <= shared and all(map(_writes_only_rows, step.body))


def _writes_only_rows(statement: Statement) -> bool:
    """Return whether a statement writes to buffers only in loops over rows."""
    match statement:
        case Let() | Start() | Accumulate():
            return True
        case Clear(target):
            return target.indices in ((), (PART,))
        case Loop(_, _, _, body):
            return writes_rows(statement) or all(map(_writes_only_rows, body))
    return False


def writes_rows(loop: Loop) -> bool:
    """Return whether each iteration of a loop writes to its row, or to memory of its thread."""
    places = [load for load, is_written in accesses(loop.body) if is_written]
    rows_only = all(belongs_to_share(load, loop) for load in places)
    return bool(places) and rows_only and {*names_added(loop.body)} <= {*names_made(loop.body)}


def belongs_to_share(load: Load, row: Loop | None) -> bool:
    """Return whether only one thread accesses an entry; `row` is the loop over rows around it."""
    if load.indices[:1] == (PART,):
        return True
    return (
        row is not None
        and load.indices[:1] == (row.index,)
        and load.buffer.shape[:1] == (row.extent,)
    )


def shareable(steps: Sequence[Step], buffers: Iterable[Buffer]) -> set[Buffer]:
    """Select the buffers whose rows threads can share. A step writes to shared buffers only, or to
    none of them."""
    shared = {buffer for buffer in buffers if buffer.shape}
    while coupled := {b for s in steps if not is_divisible(s, shared) for b in targets(s) & shared}:
        shared -= coupled
    return shared


# Costs


def operation_count(step: Step) -> sympy.Expr:
    """Estimate the scalar operations of a step."""
    match step:
        case LoopNest(_, body):
            return sympy.Add(*map(_statement_ops, body))
        case Gemm():
            (m, k), (_, n) = step.left.shape[-2:], step.right.shape[-2:]
            return product((*(extent for _, extent in step.batch), m, k, n))
        case Fill(buffer):
            return product(buffer.shape)
    operands = (part for part in vars(step).get("arguments", ()) if isinstance(part, Operand))
    return OPS_PER_VECTOR_OP_ENTRY * sympy.Add(
        *(product(operand.buffer.shape) for operand in operands)
    )


def _statement_ops(statement: Statement) -> sympy.Expr:
    """Estimate the scalar operations of a statement."""
    match statement:
        case Loop(_, extent, _, body):
            return extent * sympy.Add(*map(_statement_ops, body))
        case Guard(condition, body) if isinstance(condition, sympy.Basic):
            return sympy.Add(*map(_statement_ops, body))  # conditions on numbers rarely hold
        case Clear(target):
            return product(target.buffer.shape[len(target.indices) :])
        case Let(_, value) | Accumulate(_, value):
            return sympy.Integer(_scalar_ops(value))
        case Store(_, value, _):
            return sympy.Integer(1 + _scalar_ops(value))
    return sympy.S.Zero


def _scalar_ops(value: Scalar) -> int:
    return sum(
        1 if operation.operator in CHEAP else OPS_PER_FUNCTION for operation in operations(value)
    )


# The share of a thread


def thread_share(step: Step, shared: set[Buffer], owned: set[Buffer]) -> Step:
    """Restrict `step` to thread PART of PARTS: its rows of `shared`. Thread 0 also runs writes to
    other `owned` buffers; every thread runs all other writes."""
    match step:
        case Fill(buffer) if buffer in owned:
            clear = Clear(Load(buffer, ()))
            return thread_share(LoopNest(f"{buffer.name} = 0", (clear,)), shared, owned)
        case LoopNest(comment, body) if targets(step) & shared:
            return LoopNest(comment, rebuilt(body, _loop_over_share))
        case LoopNest(comment, body) if targets(step) & owned:
            return LoopNest(comment, (Guard(sympy.Eq(PART, 0), body),))
    return step


def _loop_over_share(statement: Any) -> Any:
    """Restrict a loop over rows to the share of a thread; None for any other part of a step."""
    match statement:
        case Clear(target) if not target.indices:
            inner = Clear(Load(target.buffer, (ROW,)))
            return _loop_over_share(Loop(ROW, target.buffer.shape[0], False, (inner,)))
        case Loop(index, extent, reduction, body) if writes_rows(statement):
            start, stop = (border(extent, PART + offset, PARTS) for offset in (0, 1))
            return Loop(index, stop, reduction, body, start)
    return None
