"""Products of a matrix with a vector as calls instead of loops.

A loop that adds one row after the other reads and writes the sum for each row, and one that
multiplies one row after the other adds up the products of each; the functions take four rows at a
time. They cannot be fused with other loops, or restricted to a share of the rows. So this is for
the steps of loops over time, which read small matrices again and again. A call of BLAS takes 0.5 µs
more than these functions for 16 to 64 rows."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from derivatrix.compiler.plan.infix import infix_text
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.steps import (
    Accumulate,
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
    Start,
    Step,
    Store,
)
from derivatrix.compiler.plan.visit import rebuilt, symbols


def with_matrix_vector_calls(steps: Sequence[Step], names: Names) -> list[Step]:
    """Replace the loops that multiply a matrix by a vector, from either side, by calls."""
    return [new for step in steps for new in (_calls(step, names) or [step])]


def _calls(step: Step, names: Names) -> list[Step]:
    """Return the steps that compute the vector and multiply; none for other loops."""
    match step:
        case LoopNest(_, (Loop(start=0) as rows,)):
            return _row_products(rows, names) or _weighted_rows(rows, names)
    return []


def _row_products(rows: Loop, names: Names) -> list[Step]:
    """Match target[i] = sum[j] matrix[i, j] * vector[j], or target[i] = f of such a sum."""
    match rows.body:
        case (
            Start(total),
            Loop(_, _, _, (Accumulate(added, value),), start=0) as columns,
            Store() as store,
        ) if total == added:
            split = _vector_and_matrix(value, rows, columns, along=columns)
        case _:
            return []
    if split is None:
        return []
    fill, vector = _vector(split[0], columns, (), names)
    matrix, product, later = split[1], store.target.buffer, []
    if store != Store(store.target, Name(total), False) or not _is_entry(store.target, rows):
        product = Buffer(names.numbered("t"), (rows.extent,))
        entry = Load(product, (rows.index,))
        store = rebuilt(store, lambda part: entry if part == Name(total) else None)
        later = [_loop_over(rows, store)]
    comment = f"{product.name} = {matrix.name} @ {vector.name}"
    return [*fill, _call(comment, "sums.multiply_rows", matrix, vector, product), *later]


def _weighted_rows(rows: Loop, names: Names) -> list[Step]:
    """Match target[j] += sum[i] vector[i] * matrix[i, j]."""
    *before, inner = rows.body
    lets = {let.name: let for let in before if isinstance(let, Let)}
    match inner:
        case Loop(_, _, _, (Store(target, value, accumulate=True),), start=0) as columns if len(
            lets
        ) == len(before) and _is_entry(target, columns):
            split = _vector_and_matrix(value, rows, columns, along=rows)
        case _:
            return []
    if split is None:
        return []
    weight, matrix = split
    if isinstance(weight, Name) and weight.name in lets:
        weight = lets.pop(weight.name).value
    fill, weights = _vector(weight, rows, tuple(lets.values()), names)
    comment = f"{target.buffer.name} += {weights.name} @ {matrix.name}"
    return [*fill, _call(comment, "sums.add_weighted_rows", weights, matrix, target.buffer)]


def _is_entry(target: Load, loop: Loop) -> bool:
    """Return whether the rounds of a loop write the entries of a vector, one after the other."""
    return target.indices == (loop.index,) and target.buffer.shape == (loop.extent,)


def _vector_and_matrix(
    value: Scalar, rows: Loop, columns: Loop, along: Loop
) -> tuple[Scalar, Buffer] | None:
    """Split a product into a number that changes only in the loop `along`, one of the two, and the
    matrix whose entry the number multiplies; None for other values."""
    match value:
        case Operate("neg", (Operate("mul") as product,)):
            split = _vector_and_matrix(product, rows, columns, along)
            return split and (Operate("neg", split[:1]), split[1])
        case Operate("mul"):
            pass
        case _:
            return None
    indices: tuple[sympy.Expr, ...] = (rows.index, columns.index)
    entries = [f for f in value.operands if isinstance(f, Load) and f.indices == indices]
    numbers = tuple(factor for factor in value.operands if factor not in entries)
    across = rows if along is columns else columns
    if len(entries) != 1 or across.index in symbols(numbers):
        return None
    matrix = entries[0].buffer
    if matrix.shape != (rows.extent, columns.extent) or matrix.role == "constant":
        return None  # constants are doubles in kernels of singles, too
    return (Operate("mul", numbers) if len(numbers) > 1 else numbers[0]), matrix


def _vector(
    value: Scalar, loop: Loop, lets: tuple[Let, ...], names: Names
) -> tuple[list[Step], Buffer]:
    """Return the vector of the values that the rounds of a loop have, and the steps that fill it,
    none if these values are a vector in memory already. lets: definitions of names in `value`."""
    match value:
        case Load(buffer, (loop.index,)) if (
            buffer.shape == (loop.extent,) and buffer.role != "constant"
        ):
            return [], buffer
    vector = Buffer(names.numbered("t"), (loop.extent,))
    store = Store(Load(vector, (loop.index,)), value, accumulate=False)
    return [_loop_over(loop, store, lets)], vector


def _loop_over(loop: Loop, store: Store, lets: tuple[Let, ...] = ()) -> LoopNest:
    sign = "+=" if store.accumulate else "="
    comment = f"{infix_text(store.target)} {sign} {infix_text(store.value)}"
    return LoopNest(comment, (Loop(loop.index, loop.extent, False, (*lets, store)),))


def _call(comment: str, function: str, *buffers: Buffer) -> Call:
    operands = tuple(Operand(buffer, buffer.shape) for buffer in buffers)
    return Call(comment, function, operands)
