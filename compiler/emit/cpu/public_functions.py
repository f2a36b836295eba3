"""Arguments of the declarations of kernels, public functions and operators in a module."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import cache

import sympy

from derivatrix.compiler.emit.cpu.rows import borders
from derivatrix.compiler.emit.description import FunctionDescription, OperatorDescription
from derivatrix.compiler.emit.imports import Imports, uses
from derivatrix.compiler.emit.signatures import array_text, local_sizes, returns_text, signature
from derivatrix.compiler.ir.operation import Kernel
from derivatrix.compiler.ir.python_text import index
from derivatrix.compiler.plan.row_shares import PART
from derivatrix.compiler.plan.steps import Gemm, Newton, Plan, Recurrence, Rows, Sums
from derivatrix.compiler.plan.visit import can_fail, renamed
from derivatrix.compiler.structured.operator_text import operator_lines


def function_arguments(function: FunctionDescription) -> list[str]:
    """Print the arguments of `generated.function` for a public function."""
    arguments = [f'"{function.name}"', function.plan.name]
    if not isinstance(function.result, str):
        arguments.append(f"returns={returns_text(function)}")
    return arguments


def kernel_arguments(plan: Plan) -> list[str]:
    """Print the arguments of `generated.kernel`, except for compiler flags."""
    first, *keywords = signature(plan)
    blas = ["blas=True"] if calls_blas(plan) else []
    times = " ".join(_times(plan))
    blas += [f'times="{times}"'] if times else []
    fails = ["can_fail=True"] if can_fail(plan) else []
    return [first, *parallel_arguments(plan), *blas, *fails, *keywords]


def _times(plan: Plan) -> list[str]:
    """List the sizes that are lengths of the loops over time of a kernel."""
    steps = [step for inner in (plan, *plan.inner) for step in inner.recurrences]
    return sorted({str(size) for step in steps for size in step.length.free_symbols})


def size_text(plan: Plan, polynomial: sympy.Expr) -> str:
    """Print a polynomial of sizes, in the local names of a kernel."""
    return index(sympy.factor_terms(polynomial.xreplace(local_sizes(plan))))


def calls_blas(plan: Plan) -> bool:
    """Return whether a kernel, or one that it calls, calls BLAS or LAPACK."""
    plans = plan.with_callees
    steps = [step for called in plans for step in called.every_step]
    return any(isinstance(step, Gemm | Newton | Recurrence) for step in steps) or any(
        _uses_registered_routine(kernel) for called in plans for kernel in called.kernels
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
    rows = plan.rows
    if rows is None or rows.work_arrays or rows.phases > 1:
        return False
    bounds = {
        bound: bound.args[0] * bound.args[1].xreplace({PART: sympy.S.Zero})
        for bound in borders(rows.kernel)
    }
    return bool(renamed(rows.kernel.steps, bounds) == plan.steps)


def parallel_arguments(plan: Plan) -> list[str]:
    """Print the call of `support.cpu.parallel` that partitions a kernel; nothing if threads do not
    share its work."""
    if plan.rows is not None:
        return _call_texts("by_rows", _rows_arguments(plan, plan.rows))
    if plan.parts is not None:
        sliced = _flagged_names(plan, plan.parts.sliced)
        arguments = [f'"{size_text(plan, plan.parts.ops)}"', f'"{sliced}"']
        arguments += ["cache_blocks=True"] if plan.has_cache_blocks else []
        if layout := plan.parts.batch_last:
            limits = map(str, (layout.min_samples, layout.max_ratio, layout.max_entries))
            entries = size_text(plan, layout.entries_per_sample)
            call = _call_texts("batch_last", [layout.kernel.name, f'"{entries}"', *limits])
            arguments += [f"batch_last={call[0]}", *call[1:]]
        return _call_texts("by_samples", arguments)
    return _call_texts("by_sums", _sums_arguments(plan, plan.sums)) if plan.sums is not None else []


def parallel_functions(plan: Plan) -> list[str]:
    """Name the functions of `support.cpu.parallel` that `parallel_arguments` calls."""
    partitions = {
        "batch_last": plan.parts.batch_last if plan.parts else None,
        "by_rows": plan.rows,
        "by_samples": plan.parts,
        "by_sums": plan.sums,
    }
    return [name for name, partition in partitions.items() if partition is not None]


def _call_texts(name: str, arguments: list[str]) -> list[str]:
    """Print a call as one text per argument."""
    texts = [f"{name}({arguments[0]}", *arguments[1:]]
    return [*texts[:-1], f"{texts[-1]})"]


def _rows_arguments(plan: Plan, rows: Rows) -> list[str]:
    arguments = [f'"{size_text(plan, rows.gain)}"']
    if not is_own_share(plan):
        arguments.append(f"share={rows.kernel.name}")
    if rows.phases > 1:
        arguments.append(f"phases={rows.phases}")
    for name, kind in (("work", "real"), ("integers", "integer")):
        buffers = [buffer for buffer in rows.work_arrays if buffer.kind == kind]
        arrays = [array_text(b.name, b.shape, local_sizes(plan)) for b in buffers]
        arguments += [f'{name}="{", ".join(arrays)}"'] if arrays else []
    return arguments


def _sums_arguments(plan: Plan, sums: Sums) -> list[str]:
    outputs = [buffer.name for _, buffer in plan.outputs]
    per_sample = " ".join(itertools.compress(outputs, sums.per_sample_outputs))
    first_part = " ".join(itertools.compress(outputs, sums.first_part_outputs))
    costs = (sums.entries_per_sample, sums.ops_per_sample, sums.ops_per_part)
    arguments = [f'"{" ".join(filter(None, [_flagged_names(plan, sums.sliced), per_sample]))}"']
    arguments += [f'"{size_text(plan, cost)}"' for cost in costs]
    arguments += [f"min_samples={sums.min_samples}"] if sums.min_samples != 1 else []
    arguments += ["is_blas_bound=True"] if sums.is_blas_bound else []
    arguments += ["is_gram_bound=True"] if sums.is_gram_bound else []
    arguments += [f'first_part="{first_part}"'] if first_part else []
    return arguments if sums.is_whole_kernel else [*arguments, f"part={sums.part.name}"]


def _flagged_names(plan: Plan, flags: Iterable[bool]) -> str:
    """List the arguments whose flags are set."""
    pairs = zip(plan.arguments, flags, strict=True)
    return " ".join(argument.local for argument, flag in pairs if flag)


# Operators


def operator_arguments(
    operator: OperatorDescription, owner: str
) -> tuple[list[str], list[str], set[str]]:
    """Print the arguments of `generated.operators`, and the lines that build the operators from
    `_parts`, `_dtype` and sizes; also return the names that these lines read."""
    function, structured = operator.function, operator.structured
    plan = function.plan
    first, *keywords = signature(plan)
    buffers = {name: buffer.name for name, buffer in plan.outputs}
    parts = [
        buffers.get(f"part_{number}") or local_name(plan, node.name)  # type: ignore[attr-defined]
        for number, node in enumerate(structured.parts)
    ]
    returned = returns_text(function) if not isinstance(function.result, str) else '"operator"'
    local = local_sizes(plan)
    lines: list[str] = []
    names: set[str] = set()
    for item in structured.operators:
        title = f"{owner}: {structured.title(item)}"
        text = operator_lines(title, item, structured, lambda size: size.xreplace(local), names)
        lines += [*text[:-1], f"{text[-1]},"]
    arguments = [
        f'"{function.name}"',
        first,
        f'"{" ".join(parts)}"',
        f"_{function.name}",
        returned,
        *([f"kernel={plan.name}"] if plan.outputs else []),
        *keywords,
    ]
    return arguments, lines, names


def local_name(plan: Plan, name: str) -> str:
    """Return the local name of an argument within a kernel."""
    return next(argument.local for argument in plan.arguments if argument.name == name)
