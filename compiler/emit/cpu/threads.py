"""What lets threads of the CPU share the work of a kernel, as texts for the templates."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace

import sympy

from derivatrix.compiler.emit.cpu.kernel import KernelText, kernel_text, passed, size_names
from derivatrix.compiler.ir.python_text import index, tuple_text
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.row_shares import PARTS, border
from derivatrix.compiler.plan.steps import (
    Allocate,
    Buffer,
    Fill,
    Nest,
    Plan,
    Rows,
    Step,
    Sums,
)
from derivatrix.compiler.plan.visit import buffers, loops, renamed


def rows_texts(plan: Plan, owner: str) -> list[KernelText]:
    """The kernels of a plan's large outputs, and of shares of their rows, as `kernel_text` has
    them."""
    assert plan.rows is not None
    texts = []
    if plan.rows.alone:
        texts.append(kernel_text(plan.rows.alone, owner, f"`{plan.name}` for large results."))
    for phase in plan.rows.phases:
        named = _borders_named(phase)
        steps = renamed(phase.steps, named)
        summary = f"A share of `{plan.name}`: part of parts."
        text = kernel_text(replace(phase, steps=steps), owner, summary)
        lines = (*text.head, *(f"{name} = {index(term)}" for term, name in named.items()))
        texts.append(replace(text, parameters=f"{text.parameters}, part, parts", head=lines))
    return texts


def _borders_named(plan: Plan) -> dict[sympy.Basic, sympy.Basic]:
    """Where loops over shares start and stop, which has to be known before them for vector code,
    with names."""
    taken = [*(a.local for a in plan.arguments), *(size.local for size in plan.sizes)]
    names = Names([*taken, *(buffer.name for step in plan.steps for buffer in buffers(step))])
    found = dict.fromkeys(
        term
        for step in plan.steps
        if isinstance(step, Nest)
        for loop in loops(step.body)
        for term in (loop.start, loop.extent)
        if isinstance(term, border)
    )
    return {term: sympy.Symbol(names.numbered("row"), integer=True) for term in found}


@dataclass(frozen=True)
class BlocksText:
    """A function that calls a kernel for a block of samples at a time: its parameters but the last
    three; `made`: what is added up (what a block makes, and the sum), and as texts: all that a
    block makes, one of the sums, and the shapes of all; `call`: of the kernel."""

    name: str
    parameters: str
    made: tuple[tuple[str, str], ...]
    more: str
    total: str
    shapes: str
    call: str


def blocks_text(plan: Plan) -> BlocksText | None:
    """The function for a plan that adds up samples block by block, if it does."""
    if (sums := plan.sums) is None:
        return None
    given = [f"given_{number}" for number in range(len(sums.sliced))]
    made = [f"result_{number}" for number in range(sum(sums.divided))]
    totals = [(f"more_{number}", f"sum_{number}") for number in range(len(sums.shapes))]
    cut = [
        *(f"{a}[start:stop]" if flag else a for a, flag in zip(given, sums.sliced, strict=True)),
        *(given[position] for position in sums.whole),
        *(f"{array}[start:stop]" for array in made),
        *(more for more, _ in totals),
    ]
    return BlocksText(
        f"{plan.name}_blocks",
        ", ".join([*given, *made, *(total for _, total in totals)]),
        tuple(totals),
        ", ".join(more for more, _ in totals),
        totals[0][1],
        tuple_text(f"{total}.shape" for _, total in totals),
        f"{sums.part.name}({', '.join(cut)})",
    )


@dataclass(frozen=True)
class SharedText:
    """A function that does what a kernel does in parts, by several threads.

    plan: the kernel's name; parameters: its arrays, and the length of a block if it needs that;
    output: one that it fills. head: lines that make work arrays. kernels: what does a part, one
    after the other; kinds: the types of their arguments, a word each; codes: where these come from,
    of `given` (see `support.cpu.crew`). tail: lines for what is left to do; leaving: those at the
    end.
    """

    name: str
    plan: str
    parameters: str
    output: str
    head: tuple[str, ...]
    kernels: tuple[str, ...]
    kinds: str
    codes: str
    given: str
    tail: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()

    @property
    def typed(self) -> str:
        """The kernels with the types of their arguments."""
        return ", ".join(f'({kernel}, "{self.kinds}")' for kernel in self.kernels)


def shared_text(plan: Plan, owner: str, columns: bool) -> SharedText | None:
    """The function by which threads share the work of a plan, if they do; columns: whether it has
    the samples last in memory."""
    if plan.sums is not None:
        return _shared_sums(plan, plan.sums, owner)
    if plan.rows is not None and plan.rows.phases:
        return _shared_rows(plan, plan.rows, owner)
    if plan.parts is None:
        return None
    cut = [*plan.parts.sliced, *(True for _ in plan.outputs)]
    part = "S" if columns else "s"
    codes = "".join(part if flag else "w" for flag in cut)
    given = passed(plan)
    return SharedText(
        f"{plan.name}_shared",
        plan.name,
        given,
        plan.outputs[0][1].name,
        (),
        (plan.name,),
        _kinds(plan, _filled(plan)),
        codes,
        given,
    )


def _filled(plan: Plan) -> list[Buffer]:
    return [buffer for _, buffer in plan.outputs]


def _kinds(plan: Plan, buffers: Iterable[Buffer], *others: str) -> str:
    """The types of a kernel's arguments."""
    shapes = [argument.shape for argument in plan.arguments]
    return " ".join(
        [
            *(f"real:{len(shape)}" if shape else "real" for shape in shapes),
            *(f"{_ENTRIES[buffer.kind]}:{len(buffer.shape)}" for buffer in buffers),
            *others,
        ]
    )


_ENTRIES = {"real": "real", "integer": "int32"}


def _shared_rows(plan: Plan, rows: Rows, owner: str) -> SharedText:
    made = _making(plan, owner, Allocate(rows.work)) if rows.work else None
    given = [passed(plan), *(buffer.name for buffer in rows.work)]
    return SharedText(
        f"{plan.name}_shared",
        plan.name,
        passed(plan),
        plan.outputs[0][1].name,
        _lines(made) if made else (),
        tuple(phase.name for phase in rows.phases),
        _kinds(plan, [*_filled(plan), *rows.work], "intp", "intp"),
        "w" * (len(plan.arguments) + len(plan.outputs) + len(rows.work)) + "pn",
        ", ".join(given),
        leaving=made.tail if made else (),
    )


def _shared_sums(plan: Plan, sums: Sums, owner: str) -> SharedText:
    arguments = [argument.local for argument in plan.arguments]
    outputs = [buffer.name for _, buffer in plan.outputs]
    divided = list(itertools.compress(_filled(plan), sums.divided))
    by_sample = [buffer.name for buffer in divided]
    others = [name for name in outputs if name not in by_sample]
    names = Names([*arguments, *outputs, *(size.local for size in plan.sizes)])
    locals_ = size_names(plan)
    totals = [
        Buffer(names.numbered("sum_"), (PARTS, *(size.xreplace(locals_) for size in shape)))
        for shape in sums.shapes
    ]
    added = [total.name for total in totals]
    rest = [*arguments, *(f"{name}[0]" for name in added), *others]
    made = _making(plan, owner, Allocate(tuple(totals)), *map(Fill, totals))
    return SharedText(
        f"{plan.name}_shared",
        plan.name,
        f"{passed(plan)}, step",
        outputs[0],
        _lines(made),
        (f"{plan.name}_blocks",),
        _kinds(plan, [*divided, *(replace(each, shape=each.shape[1:]) for each in totals)])
        + " intp intp intp",
        "w" * (len(arguments) + len(by_sample)) + "o" * len(added) + "flw",
        ", ".join([*arguments, *by_sample, *added, "step"]),
        (
            "for part in range(1, parts):",
            *(f"    add_onto({name}[0], {name}[part])" for name in added),
            f"{sums.rest.name}({', '.join(rest)})",
        ),
        made.tail,
    )


def _making(plan: Plan, owner: str, *steps: Step) -> KernelText:
    """A kernel that makes arrays for what a plan is called with."""
    return kernel_text(replace(plan, steps=steps), owner, "")


def _lines(kernel: KernelText) -> tuple[str, ...]:
    """The lines of a kernel, but for those at its end."""
    return (*kernel.head, *(line for step in kernel.steps for line in step.lines))
