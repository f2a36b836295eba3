"""Kernels whose results are computed row by row: threads share the rows.

One thread does not reach the bandwidth of a machine's memory. Every thread repeats the work that
precedes the rows; if that work reads large arrays, threads share it, too, in phases (see `phases`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import sympy

from derivatrix.compiler.plan.nominal_sizes import at_large
from derivatrix.compiler.plan.partial_sums import partial_sums
from derivatrix.compiler.plan.phases import phased
from derivatrix.compiler.plan.row_shares import operation_count, shareable, thread_share
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
    loads,
    names_made,
    names_read,
    operations,
    targets,
)
from derivatrix.templates.support.common.limits import MIN_OPS_PER_THREAD

REPEATED_OP_WEIGHT = sympy.Rational(1, 4)
"""Weight of an operation that every thread repeats."""
MEMORY_BOUND_OP_WEIGHT = sympy.Rational(3, 2)
"""Weight of a repeated operation that is bound by memory, whose bandwidth threads share."""
BARRIER_OPS = 100_000
"""Cost of the barrier between two phases, in scalar operations."""
STORED_OP_WEIGHT = 2
"""Weight of an operation whose result is stored, relative to an operation of `Samples`."""
SHARE_PARAMETERS = ("part", "parts")
"""Parameters of a kernel for a share of the rows: the number of the share, the number of shares."""


def rows(plan: Plan, unfused: Callable[[], Plan]) -> Rows | None:
    """Partition a kernel by the rows of its outputs; None if that does not pay. `unfused` makes the
    plan without loop fusion."""
    if (share := _one_phase(plan)) is not None:
        steps, gain = share
        shared = dataclasses.replace(
            plan, name=f"{plan.name}_rows", steps=steps, part_parameters=SHARE_PARAMETERS
        )
        return Rows(shared, 1, (), gain)
    return _several_phases(plan, unfused)


def _several_phases(plan: Plan, unfused: Callable[[], Plan]) -> Rows | None:
    """Partition a kernel into phases whose rows threads share; None if that does not pay."""
    steps = [step for step in plan.steps if not isinstance(step, Allocate | Reuse)]
    total = sympy.expand(sympy.Add(*map(operation_count, steps)))
    if (
        not all(isinstance(step, Fill | LoopNest) for step in steps)
        or at_large(total) < MIN_OPS_PER_THREAD
    ):
        return None
    steps = [step for step in unfused().steps if not isinstance(step, Allocate | Reuse)]
    phases = phased(partial_sums(steps))
    if phases is None:
        return None
    count, work_arrays = len(phases.steps), phases.work_arrays
    gain = phases.gain - BARRIER_OPS * count
    if at_large(gain) < MIN_OPS_PER_THREAD:
        return None
    name = f"{plan.name}_rows"
    outputs = (*plan.outputs, *((buffer.name, buffer) for buffer in work_arrays))
    shared = dataclasses.replace(plan, name=name, outputs=outputs, part_parameters=SHARE_PARAMETERS)
    if count == 1:
        return Rows(dataclasses.replace(shared, steps=phases.steps[0]), 1, work_arrays, gain)
    shared = dataclasses.replace(
        shared,
        part_parameters=("phase", *SHARE_PARAMETERS),
        steps=tuple(Only(f"phase == {n}", steps) for n, steps in enumerate(phases.steps)),
    )
    return Rows(shared, count, work_arrays, gain)


def _one_phase(plan: Plan) -> tuple[tuple[Step, ...], sympy.Expr] | None:
    """Restrict the steps of a plan to a share of the rows, and estimate the gain (see `Rows`); None
    if that is too small, or if rows depend on each other."""
    outputs = {buffer for _, buffer in plan.outputs}
    steps = [step for step in plan.steps if not isinstance(step, Allocate | Reuse)]
    if not all(
        isinstance(step, Fill | LoopNest) or outputs.isdisjoint(buffers(step)) for step in steps
    ):
        return None
    nests = [step for step in steps if isinstance(step, LoopNest)]
    if any(load.buffer in outputs for load in loads(nests)):
        return None
    shared = shareable(nests, outputs)
    undivided = [nest for nest in nests if not targets(nest) & shared]
    by_one_thread = [nest for nest in undivided if targets(nest) & outputs]
    if not shared or any(_feeds_others(nest, nests, outputs) for nest in by_one_thread):
        return None
    repeated_ops = sympy.Add(
        *(_repeated_ops(step) for step in steps if step not in nests or step in undivided)
    )
    divided_ops = sympy.Add(*(operation_count(nest) for nest in nests if nest not in undivided))
    gain = STORED_OP_WEIGHT * sympy.expand(divided_ops - repeated_ops)
    if at_large(gain) < MIN_OPS_PER_THREAD:
        return None
    return tuple(thread_share(step, shared, outputs) for step in plan.steps), gain


def _feeds_others(nest: LoopNest, nests: Sequence[LoopNest], outputs: set[Buffer]) -> bool:
    """Return whether `nest` writes to a buffer that is no output, or defines a scalar that another
    nest reads."""
    defined = {*names_made(nest)}
    read_elsewhere = (names_read(reader) for reader in nests if reader is not nest)
    return not targets(nest) <= outputs or any(defined & {*names} for names in read_elsewhere)


def _repeated_ops(step: Step) -> sympy.Expr:
    """Estimate the weighted operations of a step that every thread repeats."""
    if isinstance(step, LoopNest) and all(
        operation.operator in CHEAP for operation in operations(step)
    ):
        return operation_count(step) * MEMORY_BOUND_OP_WEIGHT
    return operation_count(step) * REPEATED_OP_WEIGHT
