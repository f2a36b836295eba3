"""Lengths of sums of squares: beyond the range of numbers loops add up scaled squares."""

from __future__ import annotations

from collections.abc import Callable

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.plan.index_arithmetic import index_symbol
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.loop_nest import Builder, Loops, View, loops_around
from derivatrix.compiler.plan.steps import (
    Buffer,
    Guard,
    LoopNest,
    Name,
    Number,
    Operate,
    Scalar,
    Statement,
)
from derivatrix.compiler.plan.visit import renamed

ONE = Number(sympy.S.One)


def is_beyond_range(square: Scalar) -> Operate:
    """Return whether numbers with this sum of squares have to be scaled."""
    return Operate("ne", (Operate("scaled", (ONE, square)), ONE))


def length_nests(
    square: ir.Node, view: View, view_of: Callable[[ir.Node], View | None], names: Names
) -> list[LoopNest]:
    """Write the roots of `square` to `view`: first all of them, in loops with vector instructions,
    then again those whose squares are beyond the range of numbers."""
    builder = Builder(view_of, names)
    at = [index_symbol(axis) for axis in range(square.ndim)]
    roots = builder.scalars.operate("sqrt", builder.entry(square, at))
    plain_nest = builder.nest(view, at, roots, dict(enumerate(square.shape))).build(False)

    def named_sum(value: int, loops: Loops) -> tuple[str, tuple[Statement, ...]]:
        name = names.numbered("s")
        local = View(Buffer(name, ()), (), local=True)
        return name, builder.nest(local, (), value, loops).build(False).body

    total, total_statements = named_sum(builder.entry(square, at), {})
    total_value = builder.scalars.name(total)
    parts, scaled_statements, extents = list[int](), list[Statement](), list[Loops]()
    for term in square.terms if isinstance(square, ir.Sum) else (square,):
        value, loops = builder.summand(term, at)
        part, statements = named_sum(builder.scalars.scaled(value, total_value), loops)
        parts.append(builder.scalars.name(part))
        scaled_statements += statements
        extents.append(loops)
    root = builder.scalars.operate("sqrt", builder.scalars.sum(parts))
    length = builder.scalars.operate("unscaled", root, total_value)
    scaled_statements += builder.nest(view, at, length, {}).build(False).body
    guarded = (*total_statements, Guard(is_beyond_range(Name(total)), tuple(scaled_statements)))
    if not square.ndim:
        return [LoopNest(plain_nest.comment, (*plain_nest.body, *guarded))]
    axes = sorted(range(square.ndim), key=lambda axis: view.axes[axis])
    indices = names.indices(len(axes) + max(map(len, extents)))
    renames = dict(zip(indices, indices[len(axes) :], strict=False))
    renames |= {index_symbol(axis): index for axis, index in zip(axes, indices, strict=False)}
    axis_loops = [(index, square.shape[axis]) for axis, index in zip(axes, indices, strict=False)]
    body = loops_around(renamed(guarded, renames), axis_loops)
    return [plain_nest, LoopNest(f"{view.buffer.name} beyond the range of squares", body)]
