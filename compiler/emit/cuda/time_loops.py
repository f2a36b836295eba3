"""Loops over time in one kernel, in which a thread runs all steps of its points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy

from derivatrix.compiler.emit.cuda.kernel import lifted
from derivatrix.compiler.emit.cuda.launches import Launch, launches
from derivatrix.compiler.emit.signatures import operand_names
from derivatrix.compiler.emit.structured_arguments import structured_arguments
from derivatrix.compiler.ir.dimensions import LENGTH
from derivatrix.compiler.plan.steps import (
    Buffer,
    Load,
    Loop,
    LoopNest,
    Operand,
    Plan,
    Recurrence,
    Statement,
)
from derivatrix.compiler.plan.visit import accesses, all_names, rebuilt, renamed, symbols


def in_one_kernel(recurrence: Recurrence, fresh: Callable[[], str]) -> Launch | None:
    """Make the launch of a loop over time, in which a thread runs all steps of its point. None
    where a step takes several kernels, or reads an entry that another thread wrote in the step
    before, as threads of different blocks cannot wait for each other: then the host launches each
    step.

    fresh: returns a new name for a sum."""
    plan = recurrence.step
    operands = _operands(recurrence)
    nests = [step for step in plan.steps if isinstance(step, LoopNest)]
    is_whole = all(map(_has_axes_of_buffer, operands.values()))
    if len(nests) < len(plan.steps) or not is_whole or structured_arguments(plan) or plan.constants:
        return None
    body = tuple(statement for nest in nests for statement in nest.body)
    (launch, *others) = launches(LoopNest(recurrence.comment, body), frozenset(), fresh)
    names_around = all_names((recurrence.index, recurrence.length, *operands.values()))
    names_inside = all_names(body) - {*operands, *(size.local for size in plan.sizes)}
    if others or launch.terms or names_around & names_inside:
        return None

    def at_time(part: Any) -> Load | None:
        if not isinstance(part, Load):
            return None
        operand = operands[part.buffer.name]
        entry = part.indices if operand.shape else ()  # a number is the one entry at its index
        return Load(operand.buffer, (*map(sympy.sympify, operand.index), *entry))

    points, statements = launch.points, rebuilt((*launch.before, *launch.after), at_time)
    sizes = _sizes(plan, operands, symbols((points, statements)))
    points, statements = renamed((points, statements), sizes)
    if not _are_independent(statements, [index for index, _ in points]):
        return None
    if recurrence.is_reversed:
        index = recurrence.index
        statements = renamed(statements, {index: recurrence.length - 1 - index})
    invariant, varying = lifted(statements, {recurrence.index})
    loop = Loop(recurrence.index, recurrence.length, False, tuple(varying))
    return Launch(recurrence.comment, points, (*invariant, loop))


def _operands(recurrence: Recurrence) -> dict[str, Operand]:
    """Map the names of the arrays of a step to the arrays around the loop."""
    operands = (*recurrence.arguments, *recurrence.targets)
    return dict(zip(operand_names(recurrence.step), operands, strict=True))


def _has_axes_of_buffer(operand: Operand) -> bool:
    """Return whether an operand is all of its buffer at its index, not reshaped."""
    return operand.buffer.shape[len(operand.index) :] == operand.shape


def _sizes(
    plan: Plan, operands: dict[str, Operand], read: set[sympy.Basic]
) -> dict[sympy.Basic, sympy.Expr]:
    """Write the sizes of a step that are read in terms of the sizes around the loop."""
    values: dict[str, sympy.Expr] = {}
    for size in plan.sizes:
        length = operands[size.argument.local].shape[size.axis]
        known = {symbol: values[str(symbol)] for symbol in size.value.free_symbols - {LENGTH}}
        values[size.local] = size.value.xreplace({LENGTH: length, **known})
    return {symbol: values[str(symbol)] for symbol in read if str(symbol) in values}


def _are_independent(statements: Sequence[Statement], points: Sequence[sympy.Symbol]) -> bool:
    """Return whether a thread reads of the arrays that it writes only entries at its own point."""
    entries = list(accesses(statements))
    places: dict[Buffer, set[tuple[int | None, ...]]] = {
        load.buffer: set() for load, is_written in entries if is_written
    }
    for load, _ in entries:
        if load.buffer in places:
            axes = {index: axis for axis, index in enumerate(load.indices)}
            places[load.buffer].add(tuple(map(axes.get, points)))
    return all(len(axes) == 1 and None not in next(iter(axes)) for axes in places.values())
