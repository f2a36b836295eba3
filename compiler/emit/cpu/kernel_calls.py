"""Calls of kernels in public functions: with or without BLAS's threads, or in parts by our threads.

In the second file, the kernel NAME is `_NAME`, its share or part `_NAME_share` or `_NAME_part`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import sympy

from derivatrix.compiler.emit.imports import Imports, uses
from derivatrix.compiler.emit.public_functions import if_lines, indented, size_lines, variable
from derivatrix.compiler.emit.signatures import lengths, operand_names, with_public_sizes
from derivatrix.compiler.ir.operation import Kernel
from derivatrix.compiler.ir.python_text import index, tuple_text
from derivatrix.compiler.plan.nominal_sizes import product
from derivatrix.compiler.plan.steps import Allocate, Gemm, Newton, Partition, Plan, Recurrence
from derivatrix.templates.support.common.arguments import MAX_HEAP_ENTRIES
from derivatrix.templates.support.common.module import (
    MAX_SERIAL_BLAS_ENTRIES,
    MAX_SERIAL_STEP_ENTRIES,
    MIN_OPS_PER_THREAD,
)

BATCH_LAST_BLOCK_SAMPLES = 344
"""Samples that one thread computes at a time in the batch-last layout."""
MIN_BATCH_LAST_PART = 72
"""Fewest samples of a part in the batch-last layout."""
MIN_BLAS_SAMPLES = 32
"""Fewest samples in a block that BLAS multiplies."""
MIN_WORK_RATIO = 8
"""Smallest ratio of the work for the samples of a block to the work that every part repeats."""
MAX_ENTRIES_PER_SAMPLE_RATIO = 24
"""Largest ratio of the entries of a sample to the number of samples in the batch-last layout: for
few large samples, BLAS within each sample is faster."""
MAX_ENTRIES_PER_SAMPLE = 4500
"""Largest number of entries of a sample in the batch-last layout: several samples must fit in the
cache together."""
MAX_CACHED_ENTRIES = 120_000
"""Entries of all samples up to which they stay in the cache, so that blocks do not pay."""
MAX_OPS_PER_ENTRY = 40
"""Operations per entry above which cache blocks do not pay."""


@dataclass(frozen=True)
class KernelCall:
    """The call of a kernel by public functions.

    conditions: on sizes, that select the call; small sizes meet all. direct_conditions: those of
    the direct call. counts: the numbers in conditions. definitions: lines that define what the
    calls need. direct: lines that call what is compiled for the arguments, in this thread;
    lines: those for arguments of any size. compiled: the compiled functions of direct calls.
    """

    plan: Plan
    conditions: list[str]
    direct_conditions: list[str]
    counts: list[sympy.Expr]
    definitions: list[str]
    direct: list[str]
    lines: list[str]
    compiled: list[str]


def kernel_call(plan: Plan) -> KernelCall:
    """Write the call of the kernel of a plan: by one thread, and around that, as branches under
    conditions on sizes, with BLAS's threads, in parts by our threads, and batch-last."""
    passed, counts = _passed(plan), _entry_counts(plan)
    limits = {key: f"{size_text(plan, count)} <= {LIMITS[key]}" for key, count in counts.items()}
    partition, batch_last = plan.partition, plan.batch_last
    is_serial = _is_serial(plan, plan.partitions[0]) if plan.partitions else ""
    kernel, arguments = f"_{plan.name}", passed
    if partition is not None and partition.axis == "rows" and partition.is_whole_kernel:
        kernel, arguments = f"_{plan.name}_share", f"{passed}, 0, 1"

    def in_pool(function: str) -> str:
        run = "_THREAD_POOL.run"
        if "steps" in limits:
            run = f"({run}_by_one_thread if {limits['steps']} else {run})"
        return f"{run}({function}, {arguments})"

    direct, compiled = [f"{kernel}_ready({arguments})"], [kernel]
    lines = [f"{kernel}({arguments})"]
    if "matrices" in limits:  # above the limit BLAS has threads, and the pool counts its callers
        direct = if_lines(limits["matrices"], direct, [in_pool(f"{kernel}_ready")])
        lines = [in_pool(kernel)]
    if partition is not None:
        lines = if_lines(is_serial, lines, [_call_in_parts(plan, partition)])
    is_unsuited = ""
    if batch_last is not None:
        is_unsuited, one_thread = _is_unsuited(plan, batch_last), f"_{plan.name}_by_one_thread"
        compiled.append(one_thread)
        direct = if_lines(is_unsuited, direct, [f"{one_thread}_ready({passed})"])
        serial = [f"_THREAD_POOL.run({one_thread}, {passed})"]
        suited = if_lines(is_serial, serial, [_call_in_parts(plan, batch_last)])
        lines = if_lines(is_unsuited, lines, suited)
    costs = [*counts.values(), *(cost for part in plan.partitions for cost in _costs(part))]
    definitions = [line for part in plan.partitions for line in _definitions(plan, part)]
    return KernelCall(
        plan,
        conditions=[*filter(None, (is_unsuited, is_serial)), *limits.values()],
        direct_conditions=[*filter(None, (limits.get("results"), is_serial))],
        counts=[with_public_sizes(plan, count) for count in costs],
        definitions=[*definitions, *(f"{name}_ready = ready({name})" for name in compiled)],
        direct=direct,
        lines=lines,
        compiled=compiled,
    )


def _passed(plan: Plan) -> str:
    """Write what public functions pass to a kernel."""
    inputs = [variable(plan, argument.name) for argument in plan.arguments]
    return ", ".join([*inputs, *(f"_array_{buffer.name}" for _, buffer in plan.outputs)])


def check_lines(plan: Plan, owner: str, requirements: Iterable[str]) -> list[str]:
    """Write the function that checks the arguments of a kernel."""
    outputs = {buffer.name: buffer.shape for _, buffer in plan.outputs}
    arrays = {a.name: a.shape for a in plan.arguments if a.shape} | outputs
    names = [*(argument.name for argument in plan.arguments), *outputs]
    passed = f"{owner!r}, {' '.join(arrays)!r}, {tuple_text(variable(plan, n) for n in arrays)}"
    shapes = tuple_text(tuple_text(lengths(shape)) for shape in arrays.values())
    lines = [
        f"_require_arrays({passed})",
        *size_lines(plan),
        f"_require_shapes({passed}, {shapes}, {len(arrays) - len(outputs)})",
    ]
    for requirement in requirements:
        problem = f"{owner}: an argument of a kernel is too small; it needs {requirement}"
        lines += [f"if not ({requirement}):", f"    raise ValueError({problem!r})"]
    heading = f"def _check_{plan.name}({', '.join(variable(plan, name) for name in names)}):"
    return ["@_generated.check", heading, *indented(lines), ""]


# Conditions on sizes

LIMITS = {
    "results": MAX_HEAP_ENTRIES,
    "matrices": MAX_SERIAL_BLAS_ENTRIES,
    "steps": MAX_SERIAL_STEP_ENTRIES,
}
"""Largest counts of `_entry_counts` for which a call takes the shorter way."""


def _entry_counts(plan: Plan) -> dict[str, sympy.Expr]:
    """Count the entries that LIMITS are for: "results", of all results, if there are several and
    their sizes are not numbers; "matrices", of all matrices, if the kernel calls BLAS; "steps", of
    the matrices of a step, if it also has loops over time. Of a stack, one matrix counts, as BLAS
    gets each by itself."""
    outputs = [buffer.shape for _, buffer in plan.outputs]
    shapes = [*outputs, *(argument.shape for argument in plan.arguments)]
    counts = {}
    results = sympy.Add(*map(product, outputs))
    if len(outputs) > 1 and results.free_symbols:
        counts["results"] = results
    if calls_blas(plan):
        counts["matrices"] = sympy.Add(*(product(shape[-2:]) for shape in shapes))
        times = _times(plan)
        if times:
            steps = [
                tuple(size for size in shape if not size.free_symbols & times) for shape in shapes
            ]
            counts["steps"] = sympy.Add(*(product(shape[-2:]) for shape in steps))
    return counts


def filled_entries(plan: Plan) -> str:
    """Count the entries of results and work arrays with two axes of symbolic sizes or more, which
    limit the sizes at which a kernel is verified; "" if there are no such arrays. Kernels for parts
    of the work do not count: they have sizes of their own, and need no more memory."""
    steps = [step for variant in (*plan.variants, plan) for step in variant.every_step]
    work = [buffer for step in steps if isinstance(step, Allocate) for buffer in step.buffers]
    shapes = [buffer.shape for buffer in (*work, *(buffer for _, buffer in plan.outputs))]
    large = [shape for shape in shapes if sum(bool(size.free_symbols) for size in shape) > 1]
    return size_text(plan, sympy.Add(*map(product, large))) if large else ""


def _times(plan: Plan) -> set[sympy.Basic]:
    """Return the sizes that are lengths of the loops over time of a kernel."""
    steps = [step for inner in (plan, *plan.inner) for step in inner.recurrences]
    return {size for step in steps for size in step.length.free_symbols}


def size_text(plan: Plan, polynomial: sympy.Expr) -> str:
    """Print a polynomial of sizes, by their public names. Python computes a product of two numbers
    faster than a power."""
    return index(sympy.factor_terms(with_public_sizes(plan, polynomial)), multiplied=True)


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


def _sample_count(plan: Plan, partition: Partition) -> sympy.Expr:
    """Return the length of the arrays that parts of the samples slice."""
    return plan.arguments[partition.sliced.index(True)].shape[0]


def _is_below(plan: Plan, cost: sympy.Expr, limit: int = MIN_OPS_PER_THREAD) -> str:
    """Print the condition that a cost is below a limit, by default that of a further thread."""
    return f"{size_text(plan, cost)} < {limit}"


def _is_serial(plan: Plan, partition: Partition) -> str:
    """Print the condition that one thread does the work of a kernel."""
    if not partition.is_blas_bound:
        return _is_below(plan, partition.ops)
    samples, entries = _sample_count(plan, partition), partition.entries_per_sample
    max_ops = size_text(plan, MAX_OPS_PER_ENTRY * entries)
    is_cached = _is_below(plan, entries * samples, MAX_CACHED_ENTRIES)
    return f"({is_cached} or {size_text(plan, partition.ops / samples)} > {max_ops})"


def _is_unsuited(plan: Plan, batch_last: Partition) -> str:
    """Print the condition that the batch-last layout does not pay: there are few samples, or, if it
    replaces calls of BLAS for each sample, few large ones."""
    samples = _sample_count(plan, batch_last)
    is_few = _is_below(plan, samples, batch_last.min_samples)
    if batch_last.has_sums:
        return is_few
    ratio = size_text(plan, MAX_ENTRIES_PER_SAMPLE_RATIO * samples)
    entries = size_text(plan, batch_last.entries_per_sample)
    return f"({is_few} or {entries} > min({ratio}, {MAX_ENTRIES_PER_SAMPLE}))"


def _costs(partition: Partition) -> list[sympy.Expr]:
    """List the numbers in the conditions of a partition."""
    has_entries = partition.is_blas_bound or partition.is_batch_last
    return [partition.ops, *([partition.entries_per_sample] if has_entries else [])]


# How threads share the work


def _call_in_parts(plan: Plan, partition: Partition) -> str:
    """Write the call by which several threads do the work."""
    arguments = [f"({_passed(plan)})", size_text(plan, partition.ops)]
    if partition.entries_per_sample != 0:
        arguments += [size_text(plan, partition.entries_per_sample), _min_samples(plan, partition)]
    return f"{_parts_name(plan, partition)}({', '.join(arguments)})"


def _parts_name(plan: Plan, partition: Partition) -> str:
    return f"_{plan.name}_in_{'batch_last' if partition.is_batch_last else 'parts'}"


def _min_samples(plan: Plan, partition: Partition) -> str:
    """Print the fewest samples in a block."""
    if not partition.has_sums:
        return str(MIN_BATCH_LAST_PART if partition.is_batch_last else 1)
    fewest = MIN_BLAS_SAMPLES if partition.is_blas_bound else partition.min_samples
    if partition.ops_per_part == 0:
        return str(fewest)
    repeated = size_text(plan, MIN_WORK_RATIO * partition.ops_per_part)
    ops = size_text(plan, partition.ops / _sample_count(plan, partition))
    return f"max({fewest}, ({repeated}) // max(1, {ops}))"


def _definitions(plan: Plan, partition: Partition) -> list[str]:
    """Write the functions by which one thread or several do the work of a partition."""
    name, arrays = plan.name, operand_names(plan)
    part = f"_{partition.kernel.name}" if partition.kernel is not None else f"_{name}"
    has_sums, by_rows = partition.has_sums, partition.axis == "rows"
    if partition.is_whole_kernel:
        part = f"_{name}_{'share' if by_rows else 'part'}"
    kernel = f"_{name}_by_one_thread" if partition.is_batch_last else f"_{name}"
    lines = []
    if partition.is_whole_kernel or partition.is_batch_last:
        decorator = (
            "compiled(is_called_from_python=True)" if partition.is_batch_last else "whole_kernel"
        )
        summary = '"""Do all of the work in one thread."""'
        lines = [f"@_generated.{decorator}", f"def {kernel}({', '.join(arrays)}):"]
        lines += [*indented([summary, *_serial_lines(plan, partition, part)]), ""]
    sliced = "a" if has_sums else "S" if partition.is_batch_last else "s"
    codes = "".join(
        "o" if is_sum else sliced if is_sliced else "w"
        for is_sliced, is_sum in zip(partition.sliced, partition.summed, strict=True)
    )
    numbers = "pn" if by_rows else "flb" if has_sums else ""
    if has_sums:
        lines += _sum_of_blocks(plan, partition, part)
        part = f"_{name}_blocks"
    kinds = tuple_text(map(repr, [*_kinds(plan), *("intp" for _ in numbers)]))
    bound = [
        f"{flag}=True" for flag in ("is_blas_bound", "is_gram_bound") if getattr(partition, flag)
    ]
    options = ", ".join([kernel, part, kinds, repr(codes + numbers), *bound])
    return [*lines, f"{_parts_name(plan, partition)} = SharedKernel({options})"]


def _serial_lines(plan: Plan, partition: Partition, part: str) -> list[str]:
    """Write the lines by which one thread does all of the work by the kernel of a part."""
    arrays = ", ".join(operand_names(plan))
    if partition.axis == "rows":
        return [f"{part}({arrays}, 0, 1)"]
    check, length = f"_check_{plan.name}({arrays})", _length(plan, partition)
    if partition.has_sums:
        return [check, f"{part}({arrays}, {length}, True)"]
    bounds = "0", length, str(BATCH_LAST_BLOCK_SAMPLES)
    return [check, *_block_loop(plan, partition, part, bounds, {})]


def _length(plan: Plan, partition: Partition) -> str:
    """Write the number of samples of the arrays in a kernel."""
    return f"{operand_names(plan)[partition.sliced.index(True)]}.shape[0]"


def _block_loop(
    plan: Plan,
    partition: Partition,
    part: str,
    bounds: tuple[str, str, str],
    totals: Mapping[str, str],
) -> list[str]:
    """Write the loop that calls the kernel of a part for blocks of samples, from a first sample to
    a last one by steps. totals: the arrays for sums of a block."""
    first, last, step = bounds
    blocks = [
        totals.get(array) or (f"{array}[_start:_stop]" if is_sliced else array)
        for array, is_sliced in zip(operand_names(plan), partition.sliced, strict=True)
    ]
    further = [_length(plan, partition), "_start == 0"] if totals else []
    return [
        f"for _start in range({first}, {last}, {step}):",
        f"    _stop = min(_start + {step}, {last})",
        f"    {part}({', '.join([*blocks, *further])})",
    ]


def _sum_of_blocks(plan: Plan, partition: Partition, part: str) -> list[str]:
    """Write the function that computes blocks of a part of the samples and adds up their sums."""
    arrays = operand_names(plan)
    pairs = zip(arrays, partition.summed, strict=True)
    totals = {array: f"_block_{array}" for array, is_sum in pairs if is_sum}

    def flat(array: str) -> str:
        return f"shaped({array}, ({array}.size,))"

    shapes = tuple_text(f"{total}.shape" for total in totals)
    lines = [
        '"""Add up the sums of blocks of samples, from the first one to the last."""',
        *(f"{total}[...] = 0" for total in totals),
        f"{', '.join([*totals.values(), '_memory'])} = "
        f"work_arrays({next(iter(totals))}, {shapes}, ())",
        *_block_loop(plan, partition, part, ("_first", "_last", "_step"), totals),
        *(f"    add_onto({flat(total)}, {flat(block)})" for total, block in totals.items()),
        "give_back(_memory)",
    ]
    heading = f"def _{plan.name}_blocks({', '.join([*arrays, '_first', '_last', '_step'])}):"
    return ["@_generated.compiled()", heading, *indented(lines), ""]


def _kinds(plan: Plan) -> list[str]:
    """Write the types of a kernel's arguments and results, for `SharedKernel`."""
    inputs = [f"real:{len(a.shape)}" if a.shape else "real" for a in plan.arguments]
    return [*inputs, *(f"real:{len(buffer.shape)}" for _, buffer in plan.outputs)]
