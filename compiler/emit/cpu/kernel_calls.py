"""Calls of kernels in public functions: with or without BLAS's threads, or in parts by our threads.

In the second file, the kernel NAME is `_NAME`, its share or part `_NAME_share` or `_NAME_part`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import sympy

from derivatrix.compiler.emit.cpu.kernel import array_parameters
from derivatrix.compiler.emit.cpu.rows import borders
from derivatrix.compiler.emit.imports import Imports, uses
from derivatrix.compiler.emit.public_functions import if_lines, indented, size_lines, variable
from derivatrix.compiler.emit.signatures import lengths, with_public_sizes
from derivatrix.compiler.ir.operation import Kernel
from derivatrix.compiler.ir.python_text import index, tuple_text
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
from derivatrix.compiler.plan.visit import renamed
from derivatrix.templates.support.common.limits import (
    MAX_HEAP_ENTRIES,
    MAX_SERIAL_BLAS_ENTRIES,
    MAX_SERIAL_STEP_ENTRIES,
    MIN_OPS_PER_THREAD,
)

BATCH_LAST_BLOCK_SAMPLES = 344
"""Samples that one thread computes at a time in the batch-last layout."""
MAX_CACHED_ENTRIES = 120_000
"""Entries of all samples up to which they stay in the cache, so that blocks do not pay."""
MAX_OPS_PER_ENTRY = 40
"""Operations per entry above which cache blocks do not pay."""


@dataclass(frozen=True)
class _Sharing:
    """The texts by which threads share the work of a kernel.

    is_serial: condition on sizes under which one thread does the work; costs: the numbers in it and
    in `in_parts`, the call by which several do; "" if the kernel is not called in parts.
    is_unsuited: condition under which that is so, and else another function does the work in one
    thread, and the call `others_in_parts` in several; "" if there is no other.
    definitions: lines that define all these functions. share: the share that is the kernel, if any.
    """

    is_serial: str
    costs: Sequence[sympy.Expr]
    definitions: list[str]
    in_parts: str
    is_unsuited: str = ""
    others_in_parts: str = ""
    share: str = ""


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
    """Write the call of the kernel of a plan."""
    sharing, passed, counts = _sharing(plan), _passed(plan), _entry_counts(plan)
    limits = {key: f"{size_text(plan, count)} <= {LIMITS[key]}" for key, count in counts.items()}
    kernel, one_thread = sharing.share or f"_{plan.name}", f"_{plan.name}_by_one_thread"
    arguments, is_small = f"{passed}, 0, 1" if sharing.share else passed, limits.get("matrices")

    def in_pool(function: str) -> str:
        run = "_THREAD_POOL.run"
        if "steps" in limits:
            run = f"({run}_by_one_thread if {limits['steps']} else {run})"
        return f"{run}({function}, {arguments})"

    direct = [f"{kernel}_ready({arguments})"]
    lines = [in_pool(kernel) if is_small else f"{kernel}({arguments})"]
    if is_small:
        direct = if_lines(is_small, direct, [in_pool(f"{kernel}_ready")])
    if sharing.in_parts:
        lines = if_lines(sharing.is_serial, lines, [sharing.in_parts])
    if sharing.is_unsuited:
        direct = if_lines(sharing.is_unsuited, direct, [f"{one_thread}_ready({passed})"])
        serial = [f"_THREAD_POOL.run({one_thread}, {passed})"]
        others = if_lines(sharing.is_serial, serial, [sharing.others_in_parts])
        lines = if_lines(sharing.is_unsuited, lines, others)
    functions = [kernel, *([one_thread] if sharing.is_unsuited else [])]
    return KernelCall(
        plan,
        conditions=[*filter(None, (sharing.is_unsuited, sharing.is_serial)), *limits.values()],
        direct_conditions=[*filter(None, (limits.get("results"), sharing.is_serial))],
        counts=[with_public_sizes(plan, n) for n in (*counts.values(), *sharing.costs)],
        definitions=[*sharing.definitions, *(f"{f}_ready = ready({f})" for f in functions)],
        direct=direct,
        lines=lines,
        compiled=functions,
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
"""Limits of `_entry_counts`."""


def _entry_counts(plan: Plan) -> dict[str, sympy.Expr]:
    """Count the entries of results and matrices, whose limits select the call of a kernel: of
    several results, whose sizes are not numbers; of all matrices, if BLAS is called for them; of
    the matrices of a step in loops over time. BLAS gets each matrix of a stack by itself."""
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
    limit the sizes at which a kernel is verified; empty if there are no such arrays. Kernels for
    parts of the work, which have sizes of their own, need no more than it does."""
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


def _sample_count(plan: Plan, partition: Samples | Sums) -> sympy.Expr:
    """Return the length of the arrays that parts of the samples slice."""
    return plan.arguments[partition.sliced.index(True)].shape[0]


def _is_below(plan: Plan, cost: sympy.Expr, limit: int = MIN_OPS_PER_THREAD) -> str:
    """Print the condition that a cost is below a limit, by default that of a further thread."""
    return f"{size_text(plan, cost)} < {limit}"


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


def _sharing(plan: Plan) -> _Sharing:
    match plan.partition:
        case Rows() as rows:
            return _by_rows(plan, rows)
        case Samples() as samples:
            return _by_samples(plan, samples)
        case Sums() as sums:
            return _by_sums(plan, sums)
    return _Sharing("", (), [], "")


def _by_rows(plan: Plan, rows: Rows) -> _Sharing:
    """Share rows of the results among a few threads."""
    name, arrays, is_share = plan.name, ", ".join(array_parameters(plan)), is_own_share(plan)
    share = f"_{name}_share" if is_share else f"_{rows.kernel.name}"
    # arrays of numbers are before those of integers, whatever the order in which they are filled
    work = sorted(rows.work_arrays, key=lambda buffer: buffer.kind != "real")
    kinds = [*_kinds(plan), *(f"{WORK_KINDS[b.kind][0]}:{len(b.shape)}" for b in work)]
    codes = "w" * len(kinds) + ("hpn" if rows.phases > 1 else "pn")
    kinds += ["intp"] * (len(codes) - len(kinds))
    count, ops = {PARTS: sympy.Symbol("_parts")}, size_text(plan, rows.gain)
    shapes = [tuple_text(size_text(plan, n.xreplace(count)) for n in b.shape) for b in work]
    pairs = zip(shapes, work, strict=True)
    empty = tuple_text(f"_empty({shape}, {WORK_KINDS[b.kind][1]})" for shape, b in pairs)
    costs = tuple_text([ops, *([f"lambda _parts: {empty}"] if work else [])])
    return _Sharing(
        _is_below(plan, rows.gain),
        [rows.gain],
        [
            *(_whole_kernel(plan, [f"{share}({arrays}, 0, 1)"]) if is_share else []),
            _shared(name, share, kinds, codes, rows.phases),
            _in_parts(plan, "in_parts", name, "_by_rows"),
        ],
        f"_{name}_in_parts({costs}, {_passed(plan)})",
        share=share if is_share else "",
    )


WORK_KINDS = {"real": ("real", "_dtype"), "integer": ("int32", "'int32'")}
"""Kind of a work array -> the type of its entries, for threads and where it is allocated."""


def _by_samples(plan: Plan, partition: Samples) -> _Sharing:
    """Share the samples, which may be copied to the batch-last layout."""
    name, passed, ops = plan.name, _passed(plan), size_text(plan, partition.ops)
    flags = [*partition.sliced, *(True for _ in plan.outputs)]
    codes = "".join("s" if is_sliced else "w" for is_sliced in flags)
    divide = f"partial(_by_samples, {partition.sliced}, {plan.has_cache_blocks})"
    samples = _sample_count(plan, partition)
    sharing = _Sharing(
        _is_below(plan, partition.ops),
        [partition.ops, samples],
        [
            _shared(name, f"_{name}", _kinds(plan), codes),
            _in_parts(plan, "in_parts", name, divide),
        ],
        f"_{name}_in_parts(({ops},), {passed})",
    )
    layout = partition.batch_last
    if layout is None:
        return sharing
    columns, arrays = layout.kernel.name, array_parameters(plan)
    length = f"{arrays[flags.index(True)]}.shape[0]"
    blocks = [
        f"{array}[_start:_stop]" if is_sliced else array
        for array, is_sliced in zip(arrays, flags, strict=True)
    ]
    lines = [
        f"for _start in range(0, {length}, {BATCH_LAST_BLOCK_SAMPLES}):",
        f"    _stop = min(_start + {BATCH_LAST_BLOCK_SAMPLES}, {length})",
        f"    _{columns}({', '.join(blocks)})",
    ]
    entries, few = size_text(plan, layout.entries_per_sample), layout.min_samples
    max_entries = f"min({size_text(plan, layout.max_ratio * samples)}, {layout.max_entries})"
    return replace(
        sharing,
        costs=[*sharing.costs, layout.entries_per_sample],
        definitions=[
            *sharing.definitions,
            _shared(columns, f"_{columns}", _kinds(plan), codes.replace("s", "S")),
            _in_parts(plan, "in_batch_last", columns, "_in_batch_last"),
            *_by_one_thread(plan, lines),
        ],
        is_unsuited=f"({_is_below(plan, samples, few)} or {entries} > {max_entries})",
        others_in_parts=f"_{name}_in_batch_last(({entries}, {ops}), {passed})",
    )


def _by_sums(plan: Plan, sums: Sums) -> _Sharing:
    """Share the samples that results are sums over, and add up the sums of all threads."""
    name, arrays, is_whole = plan.name, array_parameters(plan), sums.is_whole_kernel
    samples = _sample_count(plan, sums)
    length = f"{arrays[sums.sliced.index(True)]}.shape[0]"
    part = f"_{name}_part" if is_whole else f"_{sums.part.name}"
    all_samples = [f"{part}({', '.join(arrays)}, {length}, True)"]
    kinds = zip(sums.per_sample_outputs, sums.first_part_outputs, strict=True)
    are_sums = (*(False for _ in plan.arguments), *(not any(flags) for flags in kinds))
    options = f"{sums.min_samples}, {sums.is_blas_bound}, {sums.is_gram_bound}"
    divide = f"partial(_by_sums, {sums.sliced}, {options}), {are_sums}"
    run = ", _THREAD_POOL.run_by_one_thread" if sums.is_gram_bound else ""
    is_serial = _is_below(plan, sums.ops_per_sample * samples)
    if sums.is_blas_bound:
        max_ops = size_text(plan, MAX_OPS_PER_ENTRY * sums.entries_per_sample)
        is_cached = _is_below(plan, sums.entries_per_sample * samples, MAX_CACHED_ENTRIES)
        is_serial = f"({is_cached} or {size_text(plan, sums.ops_per_sample)} > {max_ops})"
    has_few = sums.min_samples != 1 and not is_whole
    costs = [sums.entries_per_sample, sums.ops_per_sample, sums.ops_per_part]
    in_parts = (
        f"_{name}_in_parts({tuple_text(size_text(plan, cost) for cost in costs)}, {_passed(plan)})"
    )
    check = f"_check_{name}({', '.join(arrays)})"
    return _Sharing(
        is_serial,
        [*costs, samples],
        [
            *(_whole_kernel(plan, [check, *all_samples]) if is_whole else []),
            *_sum_of_blocks(plan, part, [*sums.sliced, *sums.per_sample_outputs], are_sums, length),
            _in_parts(plan, "in_parts", name, f"{divide}{run}"),
            *(_by_one_thread(plan, all_samples) if has_few else []),
        ],
        "" if has_few else in_parts,
        is_unsuited=_is_below(plan, samples, sums.min_samples) if has_few else "",
        others_in_parts=in_parts if has_few else "",
    )


def _sum_of_blocks(
    plan: Plan, part: str, are_sliced: Sequence[bool], are_sums: Sequence[bool], length: str
) -> list[str]:
    """Write the function that computes blocks of a part of the samples and adds up their sums."""
    rows = list(zip(array_parameters(plan), _kinds(plan), are_sliced, are_sums, strict=True))
    ordered = sorted(rows, key=lambda row: row[3])
    totals = {array: f"_block_{array}" for array, *_, is_sum in rows if is_sum}
    blocks = [
        totals.get(array) or (f"{array}[_start:_stop]" if is_sliced else array)
        for array, _, is_sliced, _ in rows
    ]

    def flat(array: str) -> str:
        return f"shaped({array}, ({array}.size,))"

    parameters = ", ".join([*(row[0] for row in ordered), "_first", "_last", "_step"])
    shapes = tuple_text(f"{total}.shape" for total in totals)
    kinds = [*(row[1] for row in ordered), "intp", "intp", "intp"]
    codes = "w" * (len(rows) - len(totals)) + "o" * len(totals) + "flw"
    lines = [
        '"""Add up the sums of blocks of samples, from the first one to the last."""',
        *(f"{total}[...] = 0" for total in totals),
        f"{', '.join([*totals.values(), '_memory'])} = "
        f"work_arrays({next(iter(totals))}, {shapes}, ())",
        "for _start in range(_first, _last, _step):",
        "    _stop = min(_start + _step, _last)",
        f"    {part}({', '.join(blocks)}, {length}, _start == 0)",
        *(f"    add_onto({flat(total)}, {flat(block)})" for total, block in totals.items()),
        "give_back(_memory)",
    ]
    name = f"_{plan.name}_blocks"
    return [
        *("@_generated.compiled()", f"def {name}({parameters}):", *indented(lines), ""),
        _shared(plan.name, name, kinds, codes),
    ]


def _whole_kernel(plan: Plan, lines: list[str]) -> list[str]:
    """Write the kernel that does all of the work, by its share or part."""
    heading = f"def _{plan.name}({', '.join(array_parameters(plan))}):"
    summary = '"""Do all of the work."""'
    return ["@_generated.whole_kernel", heading, *indented([summary, *lines]), ""]


def _by_one_thread(plan: Plan, lines: list[str]) -> list[str]:
    """Write a function that checks arguments as the kernel does and runs `lines`."""
    arrays, name = ", ".join(array_parameters(plan)), f"_{plan.name}_by_one_thread"
    return [
        *("", "@_generated.compiled(is_called_from_python=True)", f"def {name}({arrays}):"),
        *indented([f"_check_{plan.name}({arrays})", *lines]),
        *("", f"by_one_thread[{plan.name!r}] = {name}"),
    ]


def _shared(key: str, kernel: str, kinds: Iterable[str], codes: str, phases: int = 1) -> str:
    """Write the object by which threads call a kernel."""
    arguments = [kernel, tuple_text(map(repr, kinds)), repr(codes), *[str(phases)] * (phases > 1)]
    return f"parallel_kernels[{key!r}] = ParallelKernel({', '.join(arguments)})"


def _in_parts(plan: Plan, ending: str, key: str, divide: str) -> str:
    """Write the function that calls a kernel for parts of the work."""
    parts = f"_in_parts(_{plan.name}, parallel_kernels[{key!r}], {divide})"
    return f"_{plan.name}_{ending} = {parts}"


def _kinds(plan: Plan) -> list[str]:
    """Write the types of a kernel's arguments and results, for `ParallelKernel`."""
    inputs = [f"real:{len(a.shape)}" if a.shape else "real" for a in plan.arguments]
    return [*inputs, *(f"real:{len(buffer.shape)}" for _, buffer in plan.outputs)]
