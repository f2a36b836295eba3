"""Kernels whose results are computed row by row: threads share the rows.

One thread does not reach the bandwidth of a machine's memory. Every thread repeats the work that
precedes the rows. Chains of products, row by row in several phases with a barrier after each, are
not shared: where one thread nearly saturates the memory, two took 0.8 to 1.4 times as long as one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import sympy

from derivatrix.compiler.plan.nominal_sizes import at_large, product
from derivatrix.compiler.plan.sample_axis import OPS_PER_VECTOR_OP_ENTRY
from derivatrix.compiler.plan.steps import (
    Accumulate,
    Allocate,
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
    Partition,
    Plan,
    Reuse,
    Scalar,
    Start,
    Statement,
    Step,
    Store,
)
from derivatrix.compiler.plan.straight_line import CHEAP
from derivatrix.compiler.plan.visit import (
    accesses,
    buffers,
    loads,
    loops,
    names_added,
    names_defined,
    names_read,
    operations,
    rebuilt,
    renamed,
    targets,
)
from derivatrix.templates.support.common.module import MIN_OPS_PER_THREAD

PART = sympy.Symbol("part", integer=True, nonnegative=True)
"""The number of a thread's share."""
PARTS = sympy.Symbol("parts", integer=True, positive=True)
"""The number of shares."""
ROW = sympy.Symbol("row", integer=True, nonnegative=True)
"""The index of a row."""
OPS_PER_FUNCTION = 10
"""Cost of a function of numbers, such as exp, in scalar operations."""
REPEATED_OP_WEIGHT = sympy.Rational(1, 4)
"""Weight of an operation that every thread repeats."""
MEMORY_BOUND_OP_WEIGHT = sympy.Rational(3, 2)
"""Weight of a repeated operation that is bound by memory, whose bandwidth threads share."""
STORED_OP_WEIGHT = 2
"""Weight of an operation whose result is stored, relative to one of a partition by samples."""


class border(sympy.Function):
    """The first row of a part: border(length, part, parts), a helper of `cpu.kernels`, not written
    out: it tells the compiler that the row is not negative, without which loops from there on are
    not vectorised."""


def partition_rows(plan: Plan) -> tuple[Partition, ...]:
    """Partition a kernel by the rows of its outputs; nothing if that does not pay, or if rows
    depend on each other. `Partition.ops`: the divided operations minus those that each thread
    repeats."""
    steps = [step for step in plan.steps if not isinstance(step, Allocate | Reuse)]
    outputs = {buffer for buffer in buffers(steps) if buffer.role == "output"}
    if not all(
        isinstance(step, Fill | LoopNest) or outputs.isdisjoint(buffers(step)) for step in steps
    ):
        return ()
    nests = [step for step in steps if isinstance(step, LoopNest)]
    if any(load.buffer in outputs for load in loads(nests)):
        return ()
    shared = _shareable(nests, outputs)
    undivided = [nest for nest in nests if not targets(nest) & shared]
    by_one_thread = [nest for nest in undivided if targets(nest) & outputs]
    if not shared or any(_feeds_others(nest, nests, outputs) for nest in by_one_thread):
        return ()
    repeated_ops = sympy.Add(
        *(_repeated_ops(step) for step in steps if step not in nests or step in undivided)
    )
    divided_ops = sympy.Add(*(_operation_count(nest) for nest in nests if nest not in undivided))
    gain = STORED_OP_WEIGHT * sympy.expand(divided_ops - repeated_ops)
    if at_large(gain) < MIN_OPS_PER_THREAD:
        return ()
    share = dataclasses.replace(
        plan,
        name=f"{plan.name}_rows",
        steps=tuple(_thread_share(step, shared, outputs) for step in plan.steps),
        part_parameters=("part", "parts"),
    )
    one_part = {
        bound: bound.args[0] * bound.args[1].xreplace({PART: sympy.S.Zero})
        for bound in borders(share)
    }
    unsliced = tuple(False for _ in (*plan.arguments, *plan.outputs))
    partition = Partition(
        "rows",
        share,
        unsliced,
        unsliced,
        gain,
        is_whole_kernel=renamed(share.steps, one_part) == plan.steps,
    )
    return (partition,)


def borders(share: Plan) -> list[border]:
    """List the bounds of loops over a share of the rows, each once."""
    bounds = dict.fromkeys(
        bound
        for step in share.every_step
        if isinstance(step, LoopNest)
        for loop in loops(step.body)
        for bound in (loop.start, loop.extent)
        if isinstance(bound, border)
    )
    return list(bounds)


def _feeds_others(nest: LoopNest, nests: Sequence[LoopNest], outputs: set[Buffer]) -> bool:
    """Return whether `nest` writes to a buffer that is no output, or defines a scalar that another
    nest reads."""
    defined = {*names_defined(nest)}
    read_elsewhere = (names_read(reader) for reader in nests if reader is not nest)
    return not targets(nest) <= outputs or any(defined & {*names} for names in read_elsewhere)


def _repeated_ops(step: Step) -> sympy.Expr:
    """Estimate the weighted operations of a step that every thread repeats."""
    if isinstance(step, LoopNest) and all(
        operation.operator in CHEAP for operation in operations(step)
    ):
        return _operation_count(step) * MEMORY_BOUND_OP_WEIGHT
    return _operation_count(step) * REPEATED_OP_WEIGHT


# Rows that steps write


def _is_divisible(step: Step, shared: set[Buffer]) -> bool:
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
            return not target.indices
        case Loop(_, _, _, body):
            return _writes_rows(statement) or all(map(_writes_only_rows, body))
    return False


def _writes_rows(loop: Loop) -> bool:
    """Return whether each iteration of a loop writes only to its row."""
    places = [load for load, is_written in accesses(loop.body) if is_written]
    rows_only = all(
        load.indices[:1] == (loop.index,) and load.buffer.shape[:1] == (loop.extent,)
        for load in places
    )
    return bool(places) and rows_only and {*names_added(loop.body)} <= {*names_defined(loop.body)}


def _shareable(steps: Sequence[Step], outputs: Iterable[Buffer]) -> set[Buffer]:
    """Select the outputs whose rows threads can share. A step writes to shared buffers only, or to
    none of them."""
    shared = {buffer for buffer in outputs if buffer.shape}
    while coupled := {
        b for s in steps if not _is_divisible(s, shared) for b in targets(s) & shared
    }:
        shared -= coupled
    return shared


# Costs


def _operation_count(step: Step) -> sympy.Expr:
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


def _thread_share(step: Step, shared: set[Buffer], owned: set[Buffer]) -> Step:
    """Restrict `step` to thread PART of PARTS: its rows of `shared`. Thread 0 also runs writes to
    other `owned` buffers; every thread runs all other writes."""
    match step:
        case Fill(buffer) if buffer in owned:
            clear = Clear(Load(buffer, ()))
            return _thread_share(LoopNest(f"{buffer.name} = 0", (clear,)), shared, owned)
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
        case Loop(index, extent, reduction, body) if _writes_rows(statement):
            start, stop = (border(extent, PART + offset, PARTS) for offset in (0, 1))
            return Loop(index, stop, reduction, body, start)
    return None
