"""Kernels whose results come row by row: a share of the rows by each of several threads.

One thread alone does not use all that a machine's memory can take. What is computed before the
rows, each thread computes for itself; where that is to read large arrays, one thread is as fast.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import sympy

from derivatrix.compiler.kernels.parts import _SHARED
from derivatrix.compiler.plan.reads import accesses, buffers, names_made, names_read, operations
from derivatrix.compiler.plan.samples import OPERATION
from derivatrix.compiler.plan.sizes import at_large, product
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
    Nest,
    Operand,
    Operate,
    Plan,
    Reuse,
    Rows,
    Start,
    Statement,
    Step,
    Store,
)
from derivatrix.compiler.plan.straight import CHEAP
from derivatrix.compiler.plan.stream import ENTRIES, many, stream, streamed

PART = sympy.Symbol("part", integer=True, nonnegative=True)
PARTS = sympy.Symbol("parts", integer=True, positive=True)
ROW = sympy.Symbol("row", integer=True, nonnegative=True)
AGAIN = sympy.Rational(1, 4)
"""What an operation that every thread repeats counts."""
PASS = sympy.Rational(3, 2)
"""What it counts where a thread waits for memory that the others wait for, too."""
FUNCTION = 10
"""What a function of numbers counts."""
WRITTEN = 2
"""What an operation counts whose result goes to memory, beside those of parts."""


def rows(plan: Plan) -> Rows | None:
    """The kernel for a share of the rows, or for large results; None where nothing is gained."""
    large = streamed(plan.steps)
    if (found := _shares(plan)) is not None:
        steps, gain = found
        made = tuple(stream(step, large, always=False) for step in steps)
        return Rows(_renamed(plan, "rows", made), False, gain, _SHARED)
    if at_large(many(large)) < ENTRIES:
        return None
    made = tuple(stream(step, large, always=True) for step in plan.steps)
    return Rows(_renamed(plan, "large", made), True, many(large), ENTRIES)


def _renamed(plan: Plan, word: str, steps: tuple[Step, ...]) -> Plan:
    return dataclasses.replace(plan, name=f"{plan.name}_{word}", steps=steps)


def _shares(plan: Plan) -> tuple[tuple[Step, ...], sympy.Expr] | None:
    """What each thread does, and what a second one gains; None where that is nothing, or rows need
    each other."""
    outputs = {buffer for _, buffer in plan.outputs}
    steps = [step for step in plan.steps if not isinstance(step, Allocate | Reuse)]
    if not all(
        isinstance(step, Fill | Nest) or outputs.isdisjoint(buffers(step)) for step in steps
    ):
        return None
    nests = [step for step in steps if isinstance(step, Nest)]
    if any(load.buffer in outputs for nest in nests for load in _read(nest.body)):
        return None
    shared = {buffer for buffer in outputs if buffer.shape}
    for _ in outputs:  # what is written together with what is not shared, is not
        shared -= {
            buffer for nest in nests if not _divisible(nest, shared) for buffer in _written(nest)
        }
    whole = [nest for nest in nests if not _written(nest) & shared]
    alone = [nest for nest in whole if _written(nest) & outputs]
    if not shared or any(_needed(nest, nests, outputs) for nest in alone):
        return None
    again = sympy.Add(*(_again(step) for step in steps if step not in nests or step in whole))
    divided = sympy.Add(*(_work(nest) for nest in nests if nest not in whole))
    gain = WRITTEN * sympy.expand(divided - again)
    if at_large(gain) < _SHARED:
        return None
    return tuple(_share(step, shared, outputs) for step in plan.steps), gain


# What steps do


def _read(body: Sequence[Statement]) -> Iterator[Load]:
    return (load for load, written in accesses(body) if not written)


def _written(nest: Nest) -> set[Buffer]:
    return {load.buffer for load, written in accesses(nest.body) if written}


def _added(body: Sequence[Statement]) -> Iterator[str]:
    """The names of sums that statements add to."""
    for statement in body:
        match statement:
            case Accumulate(name, _):
                yield name
            case Loop(_, _, _, inside) | Guard(_, inside):
                yield from _added(inside)


def _divisible(nest: Nest, shared: set[Buffer]) -> bool:
    """Whether every round of some loops of a nest writes a row of what is shared, or whether the
    nest writes nothing of that."""
    if not _written(nest) & shared:
        return True
    return _written(nest) <= shared and all(map(_by_rows, nest.body))


def _by_rows(statement: Statement) -> bool:
    """Whether all that a statement writes is within loops over rows."""
    match statement:
        case Let() | Start() | Accumulate():
            return True
        case Clear(target):
            return not target.indices
        case Loop(_, _, _, body):
            return _writes_rows(statement) or all(map(_by_rows, body))
    return False


def _writes_rows(loop: Loop) -> bool:
    """Whether the rounds of a loop write a row each."""
    places = [load for load, written in accesses(loop.body) if written]
    rows_only = all(
        load.indices and load.indices[0] == loop.index and load.buffer.shape[0] == loop.extent
        for load in places
    )
    return bool(places) and rows_only and {*_added(loop.body)} <= {*names_made(loop.body)}


def _needed(nest: Nest, nests: Sequence[Nest], outputs: set[Buffer]) -> bool:
    """Whether other nests need what a nest makes besides outputs."""
    made = {*names_made(nest.body)}
    others = (other for other in nests if other is not nest)
    return not _written(nest) <= outputs or any(made & {*names_read(o.body)} for o in others)


# Work


def _work(step: Step) -> sympy.Expr:
    """About how many operations it takes."""
    match step:
        case Nest(_, body):
            return sympy.Add(*map(_operations, body))
        case Gemm():
            (m, k), (_, n) = step.left.shape[-2:], step.right.shape[-2:]
            return product((*(extent for _, extent in step.batch), m, k, n))
        case Fill(buffer):
            return product(buffer.shape)
    operands = (part for part in vars(step).get("arguments", ()) if isinstance(part, Operand))
    return OPERATION * sympy.Add(*(product(operand.buffer.shape) for operand in operands))


def _again(step: Step) -> sympy.Expr:
    """What it counts that every thread does it."""
    if isinstance(step, Nest) and all(each.operator in CHEAP for each in operations(step.body)):
        return _work(step) * PASS
    return _work(step) * AGAIN


def _operations(statement: Statement) -> sympy.Expr:
    match statement:
        case Loop(_, extent, _, body):
            return extent * sympy.Add(*map(_operations, body))
        case Guard(_, body):
            return sympy.Add(*map(_operations, body))
        case Clear(target):
            return product(target.buffer.shape[len(target.indices) :])
        case Let(_, value) | Accumulate(_, value):
            return sympy.Integer(_count(value))
        case Store(_, value, _):
            return sympy.Integer(1 + _count(value))
    return sympy.S.Zero


def _count(value: Any) -> int:
    if not isinstance(value, Operate):
        return 0
    own = 1 if value.operator in CHEAP else FUNCTION
    return own + sum(map(_count, value.operands))


# A share


def _share(step: Step, shared: set[Buffer], outputs: set[Buffer]) -> Step:
    """What one of `PARTS` threads does."""
    match step:
        case Fill(buffer) if buffer in outputs:
            clear = Clear(Load(buffer, ()))
            return _share(Nest(f"{buffer.name} = 0", (clear,)), shared, outputs)
        case Nest(comment, body) if _written(step) & shared:
            return Nest(comment, tuple(map(_some_rows, body)))
        case Nest(comment, body) if _written(step) & outputs:
            return Nest(comment, (Guard(sympy.Eq(PART, 0), body),))
    return step


def _some_rows(statement: Statement) -> Statement:
    match statement:
        case Clear(target) if not target.indices:
            inner = Clear(Load(target.buffer, (ROW,)))
            return _some_rows(Loop(ROW, target.buffer.shape[0], False, (inner,)))
        case Loop(index, extent, reduction, body) if _writes_rows(statement):
            start, stop = (sympy.floor(extent * (PART + more) / PARTS) for more in (0, 1))
            return Loop(index, stop, reduction, body, start)
        case Loop(_, _, _, body):
            return dataclasses.replace(statement, body=tuple(map(_some_rows, body)))
    return statement
