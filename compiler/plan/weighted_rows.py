"""Sums of a matrix's rows, each times a number, as calls instead of loops.

A loop that adds one row after the other reads and writes the sum for each row; the function adds
four rows at a time. It cannot be fused with other loops, or restricted to a share of the rows.
So this is for the steps of loops over time, which read small matrices again and again."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from derivatrix.compiler.plan.infix import infix_text
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.steps import (
    Buffer,
    Call,
    Let,
    Load,
    Loop,
    LoopNest,
    Name,
    Operand,
    Operate,
    Scalar,
    Step,
    Store,
)
from derivatrix.compiler.plan.visit import symbols


def with_weighted_rows(steps: Sequence[Step], names: Names) -> list[Step]:
    """Replace the loops that add weighted rows of a matrix to a vector by calls."""
    return [new for step in steps for new in (_calls(step, names) or [step])]


def _calls(step: Step, names: Names) -> list[Step]:
    """Return the steps that compute the weights and add the rows; none for other loops."""
    match step:
        case LoopNest(_, (Loop(start=0) as loop,)):
            *before, inner = loop.body
        case _:
            return []
    lets = {let.name: let.value for let in before if isinstance(let, Let)}
    match inner:
        case Loop(column, extent, _, (Store(target, value, accumulate=True),), start=0) if (
            len(lets) == len(before)
            and target.indices == (column,)
            and target.buffer.shape == (extent,)
        ):
            split = _weight_and_matrix(value, loop, inner)
        case _:
            return []
    if split is None:
        return []
    weight, matrix = split
    if isinstance(weight, Name) and weight.name in lets:
        weight = lets.pop(weight.name)
    fill: list[Step] = []
    match weight:
        case Load(weights, (loop.index,)) if (
            weights.shape == (loop.extent,) and weights.role != "constant"
        ):
            pass
        case _:
            weights = Buffer(names.numbered("t"), (loop.extent,))
            store = Store(Load(weights, (loop.index,)), weight, accumulate=False)
            kept = [Let(name, number) for name, number in lets.items()]
            comment = f"{infix_text(store.target)} = {infix_text(weight)}"
            fill = [LoopNest(comment, (Loop(loop.index, loop.extent, False, (*kept, store)),))]
    operands = (Operand(buffer, buffer.shape) for buffer in (weights, matrix, target.buffer))
    added = f"{target.buffer.name} += {weights.name} @ {matrix.name}"
    return [*fill, Call(added, "sums.add_weighted_rows", tuple(operands))]


def _weight_and_matrix(value: Scalar, rows: Loop, columns: Loop) -> tuple[Scalar, Buffer] | None:
    """Split a product into a number that depends on the row alone, and the matrix whose entry it
    multiplies; None for other values."""
    match value:
        case Operate("neg", (Operate("mul") as product,)):
            split = _weight_and_matrix(product, rows, columns)
            return split and (Operate("neg", split[:1]), split[1])
        case Operate("mul"):
            pass
        case _:
            return None
    indices: tuple[sympy.Expr, ...] = (rows.index, columns.index)
    entries = [f for f in value.operands if isinstance(f, Load) and f.indices == indices]
    numbers = tuple(factor for factor in value.operands if factor not in entries)
    if len(entries) != 1 or columns.index in symbols(numbers):
        return None
    matrix = entries[0].buffer
    if matrix.shape != (rows.extent, columns.extent) or matrix.role == "constant":
        return None  # constants are doubles in kernels of singles, too
    return (Operate("mul", numbers) if len(numbers) > 1 else numbers[0]), matrix
