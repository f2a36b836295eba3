"""Non-temporal stores: results that are larger than the caches are written past them.

A processor reads the memory that it writes to, to have it in its cache; non-temporal (streaming)
stores do without. They are scalar: a value that takes long is better vectorised.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import sympy

from derivatrix.compiler.plan.nominal_sizes import product
from derivatrix.compiler.plan.steps import (
    Buffer,
    Guard,
    Loop,
    LoopNest,
    Scalar,
    Statement,
    Step,
    Store,
)
from derivatrix.compiler.plan.straight_line import CHEAP
from derivatrix.compiler.plan.visit import accesses, buffers, operations, rebuilt

ENTRIES = 2_000_000
"""Entries of all such results from which on they are written past the caches: the memory of inputs
and results is more than what usual caches hold."""
OPERATIONS = 2
"""The most operations that make a value which is stored so."""


def non_temporal_outputs(steps: Sequence[Step]) -> set[Buffer]:
    """The outputs of two axes or more each of whose entries is stored once, one after the other,
    by few operations, and which nothing else touches."""
    nests = [step for step in steps if isinstance(step, LoopNest)]
    met = Counter(load.buffer for nest in nests for load, _ in accesses(nest.body))
    others = {buffer for step in steps if step not in nests for buffer in buffers(step)}
    found = {target for nest in nests for target in _targets(nest.body, None)}
    return {buffer for buffer in found if met[buffer] == 1 and buffer not in others}


def _targets(body: Sequence[Statement], innermost: sympy.Symbol | None) -> set[Buffer]:
    """The outputs that statements store as above, in the loop of an index."""
    found: set[Buffer] = set()
    for statement in body:
        match statement:
            case Loop(index, _, _, inside):
                found |= _targets(inside, index)
            case Store(target, value, False) if (
                target.buffer.role == "output"
                and len(target.indices) > 1
                and target.indices[-1] == innermost
                and _cheap(value)
            ):
                found.add(target.buffer)
    return found


def _cheap(value: Scalar) -> bool:
    used = list(operations(value))
    return len(used) <= OPERATIONS and all(each.operator in CHEAP for each in used)


def entries_of(found: set[Buffer]) -> sympy.Expr:
    """The number of entries of these."""
    return sympy.Add(*(product(buffer.shape) for buffer in found))


def with_non_temporal_stores(step: Step, found: set[Buffer], always: bool) -> Step:
    """A step with non-temporal stores to these outputs: `always`, or where they are large."""
    if not isinstance(step, LoopNest) or not found & {*buffers(step)}:
        return step

    def change(part: Any) -> Store | None:
        streams = isinstance(part, Store) and part.target.buffer in found
        return dataclasses.replace(part, streamed=True) if streams else None

    body = rebuilt(step.body, change)
    if always:
        return LoopNest(step.comment, body)
    large = entries_of(found) > ENTRIES
    return LoopNest(step.comment, (Guard(large, body), Guard(sympy.Not(large), step.body)))
