"""Printing of kernels that compute a share of the rows."""

from __future__ import annotations

from dataclasses import replace

import sympy

from derivatrix.compiler.emit.cpu.kernel import KernelText, kernel_text
from derivatrix.compiler.ir.operation import kernel_name
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.row_shares import border
from derivatrix.compiler.plan.steps import LoopNest, Plan, Rows
from derivatrix.compiler.plan.visit import buffers, loops, renamed


def rows_text(rows: Rows, owner: str) -> KernelText:
    """Print the kernel of a share of the rows, as `<name>_rows`."""
    name = rows.kernel.name.removesuffix("_rows")
    phase = f"In {rows.phases} phases, a" if rows.phases > 1 else "A"
    return share_text(rows.kernel, owner, f"{phase} share of `{name}`: part of parts.")


def share_text(plan: Plan, owner: str, summary: str, checked: str | None = None) -> KernelText:
    """Print a kernel that computes share number `part` of `parts` shares of the rows."""
    border_names = _named_borders(plan)
    steps = renamed(plan.steps, border_names)
    return kernel_text(
        replace(plan, steps=steps), owner, summary, checked=checked, bounds=border_names
    )


def _named_borders(plan: Plan) -> dict[sympy.Basic, sympy.Basic]:
    """Name the bounds of loops over shares. LLVM makes vector code only if variables hold them."""
    used_names = [*(a.local for a in plan.arguments), *(size.local for size in plan.sizes)]
    used_names += [kernel_name(kernel) for kernel in plan.kernels]
    names = Names([*used_names, *(buffer.name for step in plan.steps for buffer in buffers(step))])
    return {bound: sympy.Symbol(names.numbered("row"), integer=True) for bound in borders(plan)}


def borders(plan: Plan) -> list[border]:
    """List the bounds of loops over a share of the rows, each once."""
    bounds = dict.fromkeys(
        bound
        for step in plan.every_step
        if isinstance(step, LoopNest)
        for loop in loops(step.body)
        for bound in (loop.start, loop.extent)
        if isinstance(bound, border)
    )
    return list(bounds)
