"""Kernels that do a share of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sympy

from derivatrix.compiler.emit.cpu.kernel import KernelText, kernel_text
from derivatrix.compiler.ir.operation import kernel_name
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.row_shares import border
from derivatrix.compiler.plan.steps import LoopNest, Plan, Rows
from derivatrix.compiler.plan.visit import buffers, loops, renamed


def rows_text(rows: Rows, owner: str) -> KernelText:
    """The kernel for a share of the rows that others call."""
    name = rows.kernel.name.removesuffix("_rows")
    phase = f"In {rows.phases} phases, a" if rows.phases > 1 else "A"
    return share_text(rows.kernel, owner, f"{phase} share of `{name}`: part of parts.")


def share_text(
    plan: Plan, owner: str, summary: str, checked: Sequence[str] | None = None
) -> KernelText:
    """A kernel that does a share of the rows: one of `parts`, the number `part`."""
    named = _borders_named(plan)
    steps = renamed(plan.steps, named)
    return kernel_text(replace(plan, steps=steps), owner, summary, checked=checked, bounds=named)


def _borders_named(plan: Plan) -> dict[sympy.Basic, sympy.Basic]:
    """Where loops over shares start and stop, which has to be known before them for vector code,
    with names."""
    taken = [*(a.local for a in plan.arguments), *(size.local for size in plan.sizes)]
    taken += [kernel_name(kernel) for kernel in plan.kernels]
    names = Names([*taken, *(buffer.name for step in plan.steps for buffer in buffers(step))])
    return {bound: sympy.Symbol(names.numbered("row"), integer=True) for bound in shares(plan)}


def shares(plan: Plan) -> list[border]:
    """Where loops over a share of the rows start and stop, each once."""
    found = dict.fromkeys(
        bound
        for step in plan.every_step
        if isinstance(step, LoopNest)
        for loop in loops(step.body)
        for bound in (loop.start, loop.extent)
        if isinstance(bound, border)
    )
    return list(found)
