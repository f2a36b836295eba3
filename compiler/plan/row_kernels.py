"""Kernels whose results come row by row: a share of the rows by each of several threads.

One thread does not reach the bandwidth of a machine's memory. What is computed before the rows,
each thread computes for itself; or, where that reads large arrays, for its share of the rows, phase
by phase (see `phases`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import sympy

from derivatrix.compiler.plan.nominal_sizes import at_large
from derivatrix.compiler.plan.partial_sums import partial_sums
from derivatrix.compiler.plan.phases import phased
from derivatrix.compiler.plan.row_shares import share, shareable, work
from derivatrix.compiler.plan.steps import (
    Allocate,
    Buffer,
    Fill,
    LoopNest,
    Only,
    Plan,
    Reuse,
    Rows,
    Step,
)
from derivatrix.compiler.plan.straight_line import CHEAP
from derivatrix.compiler.plan.visit import (
    buffers,
    names_made,
    names_read,
    operations,
    read,
    written,
)
from derivatrix.templates.support.common.limits import MIN_OPS_PER_THREAD

REPEATED = sympy.Rational(1, 4)
"""The weight of an operation that every thread repeats."""
MEMORY_BOUND = sympy.Rational(3, 2)
"""Its weight where it waits for memory, as the others do at the same time."""
BARRIER = 100_000
"""The operations that could be done while all threads wait for each other between two phases."""
WRITTEN = 2
"""The weight of an operation whose result goes to memory, against those of `Parts`."""
SHARE = ("part", "parts")
"""Parameters of a kernel for a share of the rows: its number, and the number of shares."""


def rows(plan: Plan, unfused: Callable[[], Plan]) -> Rows | None:
    """The kernel for shares of the rows; None where nothing is gained. `unfused`: makes the plan
    without fusing loops."""
    if (found := _shares(plan)) is not None:
        steps, gain = found
        shared = dataclasses.replace(plan, name=f"{plan.name}_rows", steps=steps, given=SHARE)
        return Rows(shared, 1, (), gain)
    return _phases(plan, unfused)


def _phases(plan: Plan, unfused: Callable[[], Plan]) -> Rows | None:
    """The kernel of phases, in each of which threads do a share of the rows."""
    steps = [step for step in plan.steps if not isinstance(step, Allocate | Reuse)]
    total = sympy.expand(sympy.Add(*map(work, steps)))
    if (
        not all(isinstance(step, Fill | LoopNest) for step in steps)
        or at_large(total) < MIN_OPS_PER_THREAD
    ):
        return None
    steps = [step for step in unfused().steps if not isinstance(step, Allocate | Reuse)]
    found = phased(partial_sums(steps))
    if found is None:
        return None
    gain = found.gain - BARRIER * len(found.steps)
    if at_large(gain) < MIN_OPS_PER_THREAD:
        return None
    taken = tuple((buffer.name, buffer) for buffer in found.work)
    name, outputs, count = f"{plan.name}_rows", (*plan.outputs, *taken), len(found.steps)
    shared = dataclasses.replace(plan, name=name, outputs=outputs, given=SHARE)
    if count == 1:
        return Rows(dataclasses.replace(shared, steps=found.steps[0]), 1, found.work, gain)
    phases = tuple(Only(f"phase == {number}", each) for number, each in enumerate(found.steps))
    shared = dataclasses.replace(shared, given=("phase", *SHARE), steps=phases)
    return Rows(shared, count, found.work, gain)


def _shares(plan: Plan) -> tuple[tuple[Step, ...], sympy.Expr] | None:
    """What each thread does, and what a second one gains; None where that is nothing, or rows need
    each other."""
    outputs = {buffer for _, buffer in plan.outputs}
    steps = [step for step in plan.steps if not isinstance(step, Allocate | Reuse)]
    if not all(
        isinstance(step, Fill | LoopNest) or outputs.isdisjoint(buffers(step)) for step in steps
    ):
        return None
    nests = [step for step in steps if isinstance(step, LoopNest)]
    if any(load.buffer in outputs for load in read(nests)):
        return None
    shared = shareable(nests, outputs)
    whole = [nest for nest in nests if not written(nest) & shared]
    by_one_thread = [nest for nest in whole if written(nest) & outputs]
    if not shared or any(_needed(nest, nests, outputs) for nest in by_one_thread):
        return None
    again = sympy.Add(*(_repeated(step) for step in steps if step not in nests or step in whole))
    divided = sympy.Add(*(work(nest) for nest in nests if nest not in whole))
    gain = WRITTEN * sympy.expand(divided - again)
    if at_large(gain) < MIN_OPS_PER_THREAD:
        return None
    return tuple(share(step, shared, outputs) for step in plan.steps), gain


def _needed(nest: LoopNest, nests: Sequence[LoopNest], outputs: set[Buffer]) -> bool:
    """Return whether other nests need what a nest makes besides outputs."""
    made = {*names_made(nest)}
    others = (other for other in nests if other is not nest)
    return not written(nest) <= outputs or any(made & {*names_read(other)} for other in others)


def _repeated(step: Step) -> sympy.Expr:
    """The weight of a step that every thread repeats."""
    if isinstance(step, LoopNest) and all(each.operator in CHEAP for each in operations(step)):
        return work(step) * MEMORY_BOUND
    return work(step) * REPEATED
