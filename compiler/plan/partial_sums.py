"""Sums over the rows of matrices by several threads: each adds up its rows in an array of its own,
so that what else reads a row can do so in the same loop; then each adds up what all threads have
for its share of the entries."""

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
from derivatrix.compiler.plan.visit import accesses, buffers, loops, rebuilt, stores, written

OTHER = sympy.Symbol("other", integer=True, nonnegative=True)


def partial_sums(steps: Sequence[Step]) -> list[Step]:
    """The steps, with vectors that are sums over rows made so."""
    names = Names(buffer.name for step in steps for buffer in buffers(step))
    arrays = {
        vector: Buffer(names.exact(f"{vector.name}_parts"), (PARTS, *vector.shape))
        for vector in dict.fromkeys(step.buffer for step in steps if isinstance(step, Fill))
        if _is_summed(vector, steps)
    }
    cleared: list[Step] = []
    found: list[Step] = []
    for position, step in enumerate(steps):
        vector = next((vector for vector in arrays if vector in written(step)), None)
        if vector is None:
            found.append(step)
            continue
        array = arrays[vector]
        if isinstance(step, LoopNest):
            found.append(LoopNest(step.comment, _redirected(step.body, array)))
        else:
            clear = Clear(Load(array, (PART,)))
            cleared.append(LoopNest(f"{array.name}[part] = 0", (clear,)))
        if not any(vector in written(later) for later in steps[position + 1 :]):
            found.append(_added(vector, array))
    return [*cleared, *found]


def _is_summed(vector: Buffer, steps: Sequence[Step]) -> bool:
    """Whether a buffer is a vector that is filled with zeros, then added to by loops over rows, and
    read after that."""
    first, *others = writing = [step for step in steps if vector in written(step)]
    if len(vector.shape) != 1 or not isinstance(first, Fill) or not others:
        return False
    if [step for step in steps if vector in buffers(step)][: len(writing)] != writing:
        return False
    return all(isinstance(step, LoopNest) and _adds_rows(step, vector) for step in others)


def _adds_rows(nest: LoopNest, vector: Buffer) -> bool:
    """Whether all rounds of a nest's one loop add to entries of the vector, and to nothing else."""
    *lets, loop = nest.body
    if not isinstance(loop, Loop) or not all(isinstance(statement, Let) for statement in lets):
        return False
    return (
        written(nest) == {vector}
        and all(is_written for load, is_written in accesses(nest.body) if load.buffer == vector)
        and any(loops(loop.body))
        and all(store.accumulate and loop.index not in _free(store) for store in stores(loop))
    )


def _free(store: Store) -> set[sympy.Basic]:
    return set().union(*(index.free_symbols for index in store.target.indices))


def _redirected(body: tuple[Statement, ...], array: Buffer) -> tuple[Statement, ...]:
    """Statements that add to a thread's own row of an array."""

    def change(part: Any) -> Store | None:
        if not isinstance(part, Store):
            return None
        return dataclasses.replace(part, target=Load(array, (PART, *part.target.indices)))

    return rebuilt(body, change)


def _added(vector: Buffer, array: Buffer) -> LoopNest:
    """Add up the threads' partial sums: vector[i] += Σ_t array[t, i]."""
    store = Store(Load(vector, (ROW,)), Load(array, (OTHER, ROW)), True)
    entries = Loop(ROW, vector.shape[0], False, (store,))
    comment = f"{vector.name}[row] = sum[other] {array.name}[other, row]"
    return LoopNest(comment, (Clear(Load(vector, ())), Loop(OTHER, PARTS, True, (entries,))))
