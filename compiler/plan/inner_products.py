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
from derivatrix.compiler.plan.visit import names_read, rebuilt, walk

CALLS = {1: "sum_entries", 2: "inner_product"}
"""Number of arrays -> the function that adds up the products of their entries."""


def with_inner_products(plan: Plan) -> Plan:
    """Replace loops that sum entries, or products of two arrays' entries, by calls."""
    read_counts = Counter(names_read(plan.steps))
    return replace(plan, steps=_steps(plan.steps, read_counts))


def _steps(steps: Sequence[Step], read_counts: Counter[str]) -> tuple[Step, ...]:
    new_steps: list[Step] = []
    for step in steps:
        previous = new_steps[-1] if new_steps else None
        if isinstance(step, Only):
            new_steps.append(replace(step, steps=_steps(step.steps, read_counts)))
        elif not isinstance(step, LoopNest):
            new_steps.append(step)
        elif isinstance(previous, LoopNest) and all(isinstance(s, Let) for s in previous.body):
            body = _shortened([*previous.body, *_with_calls(step.body)], read_counts)
            new_steps[-1] = replace(step, comment=f"{previous.comment}; {step.comment}", body=body)
        else:
            step = replace(step, body=_shortened(_with_calls(step.body), read_counts))
            total = _total(previous, step)
            new_steps[len(new_steps) - bool(total) :] = [total or step]
    return tuple(new_steps)


def _total(first: Step | None, second: LoopNest) -> LoopNest | None:
    """Join `first`, which sets a number, and `second`, which adds to it, to one statement; None for
    other steps."""
    match (first, second):
        case (
            LoopNest(body=(Store(target, start, accumulate),)),
            LoopNest(body=(Store(other, term, accumulate=True),)),
        ) if target == other and not target.indices and target not in walk(term):
            terms = (
                start.operands
                if isinstance(start, Operate) and start.operator == "add"
                else (start,)
            )
            store = Store(target, Operate("add", (*terms, term)), accumulate)
            return LoopNest(f"{first.comment}; {second.comment}", (store,))
    return None


def _with_calls(body: Sequence[Statement]) -> list[Statement]:
    """Replace such sums by calls, which take the names of the sums."""
    statements: list[Statement] = []
    for statement in body:
        start = statements[-1] if statements else None
        arrays = _arrays(statement) if isinstance(start, Start) else ()
        if isinstance(start, Start) and arrays:
            statements[-1] = Let(start.name, Operate(CALLS[len(arrays)], arrays))
        else:
            statements.append(statement)
    return statements


def _arrays(statement: Statement) -> tuple[Whole, ...]:
    """Return the one or two arrays whose entries a loop multiplies and sums; () if `statement` is
    no such loop."""
    lets: dict[str, Scalar] = {}
    extents: dict[sympy.Basic, sympy.Expr] = {}
    while isinstance(statement, Loop) and statement.start == 0:
        extents[statement.index] = statement.extent
        *lets_before, statement = statement.body
        lets |= {let.name: let.value for let in lets_before if isinstance(let, Let)}
        if not all(isinstance(let, Let) for let in lets_before):
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
    (indices, *other_indices) = {load.indices for load in loads}
    lengths = tuple(map(extents.get, indices))
    cover_arrays = all(load.buffer.shape == lengths for load in loads)
    is_bijective = len({*indices}) == len(indices) >= len(extents)
    if other_indices or not is_bijective or not cover_arrays:
        return ()
    return tuple(Whole(load.buffer) for load in loads)


def _shortened(body: Sequence[Statement], read_counts: Counter[str]) -> tuple[Statement, ...]:
    """Move each call into the statement that follows it, if no other statement reads its name."""
    statements: list[Statement] = []
    for statement in body:
        previous = statements[-1] if statements else None
        if (
            isinstance(previous, Let)
            and isinstance(previous.value, Operate)
            and previous.value.operator in CALLS.values()
            and isinstance(statement, Let | Store)
            and previous.name in names_read(statement)
            and read_counts[previous.name] == 1
        ):
            statements[-1] = rebuilt(statement, {Name(previous.name): previous.value}.get)
        else:
            statements.append(statement)
    return tuple(statements)
