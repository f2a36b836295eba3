"""Work arrays: their allocation, and which of them share memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sympy

from derivatrix.compiler.plan.nominal_sizes import product
from derivatrix.compiler.plan.steps import Allocate, Buffer, Plan, Range, Reuse, Step
from derivatrix.compiler.plan.visit import buffers


def allocated(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps with allocations of their work buffers. Buffers of one shape share memory if
    one is last used before the other is first used; of several that are free, the one that was
    used last."""
    sources = {step.buffer: step.source for step in steps if isinstance(step, Range)}
    work = [
        [b for b in dict.fromkeys(sources.get(b, b) for b in buffers(step)) if b.role == "work"]
        for step in steps
    ]
    last_use = {buffer: position for position, arrays in enumerate(work) for buffer in arrays}
    places: dict[Buffer, Buffer] = {}
    free: list[Buffer] = []
    following: list[Step] = []
    for position, step in enumerate(steps):
        for buffer in work[position]:
            if buffer in places:
                continue
            fitting = [p for p in free if (p.shape, p.kind) == (buffer.shape, buffer.kind)]
            places[buffer] = fitting[-1] if fitting else buffer
            if fitting:
                free.remove(fitting[-1])
                following.append(Reuse(buffer, fitting[-1]))
        free += [places[buffer] for buffer in work[position] if last_use[buffer] == position]
        following.append(step)
    allocations = dict.fromkeys(places.values())
    if allocations:
        yield Allocate(tuple(allocations))
    yield from following


def entries(plan: Plan) -> sympy.Expr:
    """Count the entries of the plan's arguments, results and work arrays."""
    shapes = [argument.shape for argument in plan.arguments]
    shapes += [buffer.shape for _, buffer in plan.outputs]
    for variant in plan.variants[:1] or [plan]:
        steps = [step for step in variant.steps if isinstance(step, Allocate)]
        shapes += [buffer.shape for step in steps for buffer in step.buffers]
    return sympy.expand(sympy.Add(*map(product, shapes)))
