"""Data of a module on its kernels and operators: how these are called, and share work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import compress

import sympy

from derivatrix.compiler.emit.cpu.rows import borders
from derivatrix.compiler.emit.description import OperatorDescription
from derivatrix.compiler.emit.imports import Imports, uses
from derivatrix.compiler.emit.signatures import local_sizes, returned, signature
from derivatrix.compiler.ir.operation import Kernel
from derivatrix.compiler.ir.python_text import index
from derivatrix.compiler.plan.nominal_sizes import product
from derivatrix.compiler.plan.row_shares import PART, PARTS
from derivatrix.compiler.plan.steps import (
    Allocate,
    Gemm,
    Newton,
    Plan,
    Recurrence,
    Rows,
    Samples,
    Sums,
)
from derivatrix.compiler.plan.visit import can_fail, renamed
from derivatrix.compiler.structured.operator_text import operator_lines
from derivatrix.templates.support.common.limits import (
    MAX_HEAP_ENTRIES,
    MAX_SERIAL_BLAS_ENTRIES,
    MAX_SERIAL_STEP_ENTRIES,
    MIN_OPS_PER_THREAD,
)

MAX_CACHED_ENTRIES = 120_000
"""Entries of all samples up to which they stay in the cache, so that blocks do not pay."""
MAX_OPS_PER_ENTRY = 40
"""Operations per entry above which cache blocks do not pay."""


def kernel_properties(plan: Plan) -> dict[str, object]:
    """Describe how a kernel is called, for the data file: see `_Kernel` of the support."""
    counts = _entry_counts(plan)
    costs, options = _partition(plan)
    limits = {
        "small_results": MAX_HEAP_ENTRIES,
        "small_matrices": MAX_SERIAL_BLAS_ENTRIES,
        "small_steps": MAX_SERIAL_STEP_ENTRIES,
    }
    properties = {
        "signature": signature(plan, [*counts.values(), *costs]),
        **{name: f"{size_text(count)} <= {limits[name]}" for name, count in counts.items()},
        "entries": _filled_entries(plan),
        "can_fail": can_fail(plan),
        "partition": options,
    }
    return {name: value for name, value in properties.items() if value}


def _entry_counts(plan: Plan) -> dict[str, sympy.Expr]:
    """Count the entries of results and matrices, whose limits select the call of a kernel: of
    several results, whose sizes are not numbers; of all matrices, if BLAS is called for them; of
    the matrices of a step in loops over time. BLAS gets each matrix of a stack by itself."""
    outputs = [buffer.shape for _, buffer in plan.outputs]
    shapes = [*outputs, *(argument.shape for argument in plan.arguments)]
    counts = {}
    results = sympy.Add(*map(product, outputs))
    if len(outputs) > 1 and results.free_symbols:
        counts["small_results"] = results
    if calls_blas(plan):
        counts["small_matrices"] = sympy.Add(*(product(shape[-2:]) for shape in shapes))
        times = _times(plan)
        if times:
            steps = [
                tuple(size for size in shape if not size.free_symbols & times) for shape in shapes
            ]
            counts["small_steps"] = sympy.Add(*(product(shape[-2:]) for shape in steps))
    return counts


def _filled_entries(plan: Plan) -> str:
    """Count the entries of results and work arrays with two axes of symbolic sizes or more, which
    limit the sizes at which a kernel is verified; empty if there are no such arrays. Kernels for
    parts of the work, which have sizes of their own, need no more than it does."""
    steps = [step for variant in (*plan.variants, plan) for step in variant.every_step]
    work = [buffer for step in steps if isinstance(step, Allocate) for buffer in step.buffers]
    shapes = [buffer.shape for buffer in (*work, *(buffer for _, buffer in plan.outputs))]
    large = [shape for shape in shapes if sum(bool(size.free_symbols) for size in shape) > 1]
    return size_text(sympy.Add(*map(product, large))) if large else ""


def _times(plan: Plan) -> set[sympy.Basic]:
    """Return the sizes that are lengths of the loops over time of a kernel."""
    steps = [step for inner in (plan, *plan.inner) for step in inner.recurrences]
    return {size for step in steps for size in step.length.free_symbols}


def size_text(polynomial: sympy.Expr) -> str:
    """Print a polynomial of sizes. Python computes a product of two numbers faster than a power."""
    return index(sympy.factor_terms(polynomial), multiplied=True)


def calls_blas(plan: Plan) -> bool:
    """Return whether a kernel, or one that it calls, calls BLAS or LAPACK."""
    plans = plan.with_callees
    steps = [step for callee in plans for step in callee.every_step]
    return any(isinstance(step, Gemm | Newton | Recurrence) for step in steps) or any(
        _uses_registered_routine(kernel) for callee in plans for kernel in callee.kernels
    )


@cache
def _uses_registered_routine(kernel: Kernel) -> bool:
    """Return whether a helper kernel calls a routine of BLAS or LAPACK."""
    imports = Imports()
    imports.add_kernel(kernel)
    return any(uses(f"{file}.{name}", "register") for name, file in imports.support.items())


# How threads share the work


def is_own_share(plan: Plan) -> bool:
    """Return whether the kernel is its own share of the rows: number 0 of 1."""
    rows = plan.partition
    if not isinstance(rows, Rows) or rows.work_arrays or rows.phases > 1:
        return False
    bounds = {
        bound: bound.args[0] * bound.args[1].xreplace({PART: sympy.S.Zero})
        for bound in borders(rows.kernel)
    }
    return bool(renamed(rows.kernel.steps, bounds) == plan.steps)


def _partition(plan: Plan) -> tuple[list[sympy.Expr], tuple[str, dict[str, object]] | None]:
    """Describe how threads share the work of a kernel, by the options of a partition of
    `support.cpu.parallel`, None if they do not; and list the costs that decide on it."""
    match plan.partition:
        case Rows() as rows:
            return [rows.gain], ("rows", _rows_options(plan, rows))
        case Samples() as parts:
            layout, samples = parts.batch_last, _sample_count(plan, parts)
            entries = [layout.entries_per_sample] if layout else []
            return [parts.ops, *entries, samples], ("samples", _samples_options(plan, parts))
        case Sums() as sums:
            costs = [sums.ops_per_sample, sums.ops_per_part, sums.entries_per_sample]
            return [*costs, _sample_count(plan, sums)], ("sums", _sums_options(plan, sums))
    return [], None


def _sample_count(plan: Plan, partition: Samples | Sums) -> sympy.Expr:
    """Return the length of the arrays that parts of the samples slice."""
    return plan.arguments[partition.sliced.index(True)].shape[0]


def _is_below(cost: sympy.Expr, limit: int = MIN_OPS_PER_THREAD) -> str:
    """Print the condition that a cost is below a limit, by default that of a further thread."""
    return f"{size_text(cost)} < {limit}"


def _rows_options(plan: Plan, rows: Rows) -> dict[str, object]:
    options: dict[str, object] = {"conditions": (_is_below(rows.gain),)}
    options["cost"] = size_text(rows.gain)
    if not is_own_share(plan):
        options["share"] = rows.kernel.name
    if rows.phases > 1:
        options["phases"] = rows.phases
    count = {PARTS: sympy.Symbol("_parts")}
    for name, kind in (("work", "real"), ("integers", "integer")):
        arrays = {
            buffer.name: tuple(size_text(size.xreplace(count)) for size in buffer.shape)
            for buffer in rows.work_arrays
            if buffer.kind == kind
        }
        if arrays:
            options[name] = arrays
    return options


def _samples_options(plan: Plan, parts: Samples) -> dict[str, object]:
    conditions = [_is_below(parts.ops)]
    options: dict[str, object] = {"cost": size_text(parts.ops)}
    options["sliced"] = _flagged_names(plan, parts.sliced)
    if plan.has_cache_blocks:
        options["cache_blocks"] = True
    if layout := parts.batch_last:
        samples, entries = _sample_count(plan, parts), size_text(layout.entries_per_sample)
        max_entries = f"min({size_text(layout.max_ratio * samples)}, {layout.max_entries})"
        has_few_samples = _is_below(samples, layout.min_samples)
        conditions.append(f"({has_few_samples} or {entries} > {max_entries})")
        options |= {"batch_last": layout.kernel.name, "entries": entries}
    return {"conditions": tuple(conditions), **options}


def _sums_options(plan: Plan, sums: Sums) -> dict[str, object]:
    outputs = [buffer.name for _, buffer in plan.outputs]
    per_sample = compress(outputs, sums.per_sample_outputs)
    samples, entries = _sample_count(plan, sums), sums.entries_per_sample
    is_small = _is_below(sums.ops_per_sample * samples)
    if sums.is_blas_bound:
        max_ops = size_text(MAX_OPS_PER_ENTRY * entries)
        is_cached = _is_below(entries * samples, MAX_CACHED_ENTRIES)
        is_small = f"({is_cached} or {size_text(sums.ops_per_sample)} > {max_ops})"
    has_own_part = sums.min_samples != 1 and not sums.is_whole_kernel
    has_few_samples = [_is_below(samples, sums.min_samples)] * has_own_part
    options = {
        "conditions": (*has_few_samples, is_small),
        "sliced": (*_flagged_names(plan, sums.sliced), *per_sample),
        "entries": size_text(entries),
        "work": size_text(sums.ops_per_sample),
        "fixed": size_text(sums.ops_per_part),
        "min_samples": sums.min_samples if sums.min_samples != 1 else 0,
        "is_blas_bound": sums.is_blas_bound,
        "is_gram_bound": sums.is_gram_bound,
        "first_part": tuple(compress(outputs, sums.first_part_outputs)),
        "part": "" if sums.is_whole_kernel else sums.part.name,
    }
    return {name: value for name, value in options.items() if value}


def _flagged_names(plan: Plan, flags: Iterable[bool]) -> tuple[str, ...]:
    """List the arguments whose flags are set."""
    return tuple(compress((argument.name for argument in plan.arguments), flags))


# Operators


def operator_properties(operator: OperatorDescription, names: set[str]) -> dict[str, object]:
    """Describe the function that returns operators, for the data file: see `_operators` of the
    support. names: those that `make_operators` reads."""
    function, structured = operator.function, operator.structured
    plan = function.plan
    buffers = {name: buffer.name for name, buffer in plan.outputs}
    parts = tuple(
        buffers.get(f"part_{number}") or node.name  # type: ignore[attr-defined]
        for number, node in enumerate(structured.parts)
    )
    returns = returned(function) if not isinstance(function.result, str) else "operator"
    properties: dict[str, object] = {
        "name": function.name,
        "signature": signature(plan),
        "parts": parts,
        "has_loops": "_derivatives" in names,
        "sizes": tuple(size.name for size in plan.sizes if size.local in names),
        "returns": returns,
        "kernel": plan.name if plan.outputs else "",
    }
    return {name: value for name, value in properties.items() if value}


@dataclass(frozen=True)
class OperatorText:
    """The function `make_operators` of the data file. names: those that its lines read."""

    parameters: str
    lines: list[str]
    names: set[str]


def operator_text(operator: OperatorDescription, owner: str) -> OperatorText:
    """Print the function that makes the operators from `_parts`, `_dtype`, for operators that run
    loops `_derivatives`, and sizes."""
    plan, structured = operator.function.plan, operator.structured
    local = local_sizes(plan)
    lines: list[str] = []
    names: set[str] = set()
    for item in structured.operators:
        title = f"{owner}: {structured.title(item)}"
        text = operator_lines(title, item, structured, lambda size: size.xreplace(local), names)
        lines += [*text[:-1], f"{text[-1]},"]
    sizes = [size.local for size in plan.sizes if size.local in names]
    parameters = ["_parts", "_dtype", *({"_derivatives"} & names), *sizes]
    return OperatorText(", ".join(parameters), lines, names)
