"""Sums over the rows of matrices by several threads.

Each thread adds its rows to partial sums of its own, so that the loop fuses with other loops over
the rows; then each thread combines the partial sums of its share of the entries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import sympy

from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.row_shares import PART, PARTS, ROW
from derivatrix.compiler.plan.steps import (
    Buffer,
    Clear,
    Fill,
    Let,
    Load,
    Loop,
    LoopNest,
    Statement,
    Step,
    Store,
)
from derivatrix.compiler.plan.visit import accesses, buffers, loops, rebuilt, stores, targets

THREAD = sympy.Symbol("other", integer=True, nonnegative=True)


def partial_sums(steps: Sequence[Step]) -> list[Step]:
    """Rewrite the steps that sum over rows into vectors as partial sums of each thread."""
    names = Names(buffer.name for step in steps for buffer in buffers(step))
    partials_of = {
        vector: Buffer(names.exact(f"{vector.name}_parts"), (PARTS, *vector.shape))
        for vector in dict.fromkeys(step.buffer for step in steps if isinstance(step, Fill))
        if _is_row_sum(vector, steps)
    }
    clears: list[Step] = []
    result: list[Step] = []
    for position, step in enumerate(steps):
        vector = next((vector for vector in partials_of if vector in targets(step)), None)
        if vector is None:
            result.append(step)
            continue
        partials = partials_of[vector]
        if isinstance(step, LoopNest):
            result.append(LoopNest(step.comment, _to_partials(step.body, partials)))
        else:
            clear = Clear(Load(partials, (PART,)))
            clears.append(LoopNest(f"{partials.name}[part] = 0", (clear,)))
        if not any(vector in targets(later) for later in steps[position + 1 :]):
            result.append(_combined_partials(vector, partials))
    return [*clears, *result]


def _is_row_sum(vector: Buffer, steps: Sequence[Step]) -> bool:
    """Return whether a vector is filled with zeros, then accumulated by loops over rows, and only
    then read."""
    fill, *nests = writes = [step for step in steps if vector in targets(step)]
    if len(vector.shape) != 1 or not isinstance(fill, Fill) or not nests:
        return False
    if [step for step in steps if vector in buffers(step)][: len(writes)] != writes:
        return False
    return all(isinstance(step, LoopNest) and _adds_rows(step, vector) for step in nests)


def _adds_rows(nest: LoopNest, vector: Buffer) -> bool:
    """Return whether a nest is a loop that only accumulates all entries of `vector`."""
    *lets, loop = nest.body
    if not isinstance(loop, Loop) or not all(isinstance(statement, Let) for statement in lets):
        return False
    return (
        targets(nest) == {vector}
        and all(is_written for load, is_written in accesses(nest.body) if load.buffer == vector)
        and any(loops(loop.body))
        and all(
            store.accumulate and not any(index.has(loop.index) for index in store.target.indices)
            for store in stores(loop)
        )
    )


def _to_partials(body: tuple[Statement, ...], partials: Buffer) -> tuple[Statement, ...]:
    """Redirect stores to the row of `partials` that belongs to the thread."""

    def redirect(statement: Any) -> Store | None:
        if not isinstance(statement, Store):
            return None
        return dataclasses.replace(
            statement, target=Load(partials, (PART, *statement.target.indices))
        )

    return rebuilt(body, redirect)


def _combined_partials(vector: Buffer, partials: Buffer) -> LoopNest:
    """Add up the partial sums of all threads: vector[i] = Σ_t partials[t, i]."""
    store = Store(Load(vector, (ROW,)), Load(partials, (THREAD, ROW)), True)
    entries = Loop(ROW, vector.shape[0], False, (store,))
    comment = f"{vector.name}[row] = sum[other] {partials.name}[other, row]"
    return LoopNest(comment, (Clear(Load(vector, ())), Loop(THREAD, PARTS, True, (entries,))))
