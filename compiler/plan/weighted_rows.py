"""Sums of a matrix's rows, each times a number, as calls instead of loops.

A loop that adds one row after the other reads and writes the sum for each row; the function adds
several rows at a time. It cannot be fused with other loops, or restricted to a share of the rows.
So this is for the steps of loops over time, which read small matrices again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sympy

from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.steps import (
    Buffer,
    Call,
    Let,
    Load,
    Loop,
    LoopNest,
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
        case LoopNest(comment, (Loop(start=0) as loop,)):
            *lets, inner = loop.body
        case _:
            return []
    match inner:
        case Loop(column, extent, body=(Store(target, value, accumulate=True),), start=0) if all(
            isinstance(let, Let) for let in lets
        ) and target == Load(Buffer(target.buffer.name, (extent,), target.buffer.role), (column,)):
            split = _weight_and_matrix(value, loop, inner)
        case _:
            return []
    if split is None:
        return []
    weight, matrix = split
    weights = Buffer(names.numbered("t"), (loop.extent,))
    fill = Store(Load(weights, (loop.index,)), weight, accumulate=False)
    operands = (Operand(buffer, buffer.shape) for buffer in (weights, matrix, target.buffer))
    return [
        LoopNest(comment, (replace(loop, reduction=False, body=(*lets, fill)),)),
        Call(
            f"{target.buffer.name} += {weights.name} @ {matrix.name}",
            "sums.add_weighted_rows",
            tuple(operands),
        ),
    ]


def _weight_and_matrix(value: Scalar, rows: Loop, columns: Loop) -> tuple[Scalar, Buffer] | None:
    """Split a product into a number that depends on the row alone, and the matrix whose entry it
    multiplies; None for other values."""
    if not isinstance(value, Operate) or value.operator != "mul":
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
