"""Sums over all entries of an array, or of the product of two, as calls instead of loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import sympy

from derivatrix.compiler.plan.steps import (
    Accumulate,
    Let,
    Load,
    Loop,
    LoopNest,
    Name,
    Only,
    Operate,
    Plan,
    Scalar,
    Start,
    Statement,
    Step,
    Store,
    Whole,
)
from derivatrix.compiler.plan.visit import names_read, rebuilt

CALLS = {1: "sum_entries", 2: "inner_product"}
"""The function for so many arrays."""


def with_inner_products(plan: Plan) -> Plan:
    """The plan with such sums as calls."""
    reads = Counter(names_read(plan.steps))
    return replace(plan, steps=_steps(plan.steps, reads))


def _steps(steps: Sequence[Step], reads: Counter[str]) -> tuple[Step, ...]:
    found: list[Step] = []
    for step in steps:
        before = found[-1] if found else None
        if isinstance(step, Only):
            found.append(replace(step, steps=_steps(step.steps, reads)))
        elif not isinstance(step, LoopNest):
            found.append(step)
        elif isinstance(before, LoopNest) and all(isinstance(each, Let) for each in before.body):
            body = _shortened([*before.body, *_with_calls(step.body)], reads)
            found[-1] = replace(step, comment=f"{before.comment}; {step.comment}", body=body)
        else:
            found.append(replace(step, body=_shortened(_with_calls(step.body), reads)))
    return tuple(found)


def _with_calls(body: Sequence[Statement]) -> list[Statement]:
    """Statements with such sums as calls, each named as the sum was."""
    found: list[Statement] = []
    for statement in body:
        start = found[-1] if found else None
        arrays = _arrays(statement) if isinstance(start, Start) else ()
        if isinstance(start, Start) and arrays:
            found[-1] = Let(start.name, Operate(CALLS[len(arrays)], arrays))
        else:
            found.append(statement)
    return found


def _arrays(statement: Statement) -> tuple[Whole, ...]:
    """The arrays, one or two, whose entries a loop multiplies and adds up; none for what is no
    such loop."""
    lets: dict[str, Scalar] = {}
    extents: dict[sympy.Basic, sympy.Expr] = {}
    while isinstance(statement, Loop) and statement.start == 0:
        extents[statement.index] = statement.extent
        *before, statement = statement.body
        lets |= {each.name: each.value for each in before if isinstance(each, Let)}
        if not all(isinstance(each, Let) for each in before):
            return ()
    if not isinstance(statement, Accumulate):
        return ()
    value = rebuilt(
        statement.value, lambda part: lets.get(part.name) if isinstance(part, Name) else None
    )
    factors = value.operands if isinstance(value, Operate) and value.operator == "mul" else (value,)
    loads = [factor for factor in factors if isinstance(factor, Load)]
    if len(loads) < len(factors) or len(loads) not in CALLS:
        return ()
    (indices, *others) = {load.indices for load in loads}
    lengths = tuple(map(extents.get, indices))
    whole = all(load.buffer.shape == lengths for load in loads)
    if others or len({*indices}) < len(indices) or len(indices) < len(extents) or not whole:
        return ()
    return tuple(Whole(load.buffer) for load in loads)


def _shortened(body: Sequence[Statement], reads: Counter[str]) -> tuple[Statement, ...]:
    """Statements with each call in the statement after it, if nothing else needs it."""
    found: list[Statement] = []
    for statement in body:
        before = found[-1] if found else None
        if (
            isinstance(before, Let)
            and isinstance(before.value, Operate)
            and before.value.operator in CALLS.values()
            and isinstance(statement, Let | Store)
            and before.name in names_read(statement)
            and reads[before.name] == 1
        ):
            found[-1] = rebuilt(statement, {Name(before.name): before.value}.get)
        else:
            found.append(statement)
    return tuple(found)
