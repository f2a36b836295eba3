"""Kernels whose results are computed sample by sample: threads share the samples, and a thread
computes blocks of them that fit in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.plan.memory import entries
from derivatrix.compiler.plan.nominal_sizes import product
from derivatrix.compiler.plan.sample_axis import (
    is_separable,
    is_sum_over,
    operation_count,
    rounded_up,
    supports_batch_last,
    uses_sample_count,
)
from derivatrix.compiler.plan.steps import Allocate, Partition, Plan, Recurrence

MIN_SYSTEMS_BATCH_LAST = 16
"""Fewest samples for which systems of equations are solved in the batch-last layout."""


def partition_samples(
    kernel: Plan,
    roots: Sequence[ir.Node],
    arguments: Sequence[ir.Leaf],
    batch_last: Callable[[sympy.Symbol], Plan],
) -> tuple[Partition, ...]:
    """Partition a kernel along the first axis of its outputs, with a second partition if another
    kernel computes many samples in the batch-last layout; none if its samples depend on each other.
    `roots` are pairwise contractions; `batch_last` plans the kernel of that layout."""
    samples = roots[0].shape[0] if roots and roots[0].shape else None
    if samples is None or not samples.is_Symbol:
        return ()
    nodes = ir.topological(roots)
    if not all(root.shape and root.shape[0] == samples for root in roots):
        return ()
    if not is_separable(arguments, nodes, samples):
        return ()
    if any(is_sum_over(node, samples) or uses_sample_count(node, samples) for node in nodes):
        return ()
    shapes = [node.shape for node in (*arguments, *roots)]
    sliced = tuple(shape[:1] == (samples,) for shape in shapes)
    node_ops = [operation_count(node) for node in nodes]
    ops = sympy.Add(*node_ops, *(product(root.shape) for root in roots))
    repeats_ops = any(count.free_symbols and not count.has(samples) for count in node_ops)
    slices = [shape[1:] for shape in shapes if shape[:1] == (samples,)]
    partition = Partition(
        "samples",
        None,
        sliced,
        tuple(False for _ in shapes),
        rounded_up(sympy.expand(ops)),
        entries_per_sample=sympy.Add(*map(product, slices))
        if _has_large_work_arrays(kernel) and not repeats_ops
        else sympy.S.Zero,
    )
    if repeats_ops or not _solves_systems(nodes, samples):
        return (partition,)
    plan = batch_last(samples)
    return partition, replace(
        partition,
        kernel=plan,
        entries_per_sample=entries(plan).coeff(samples, 1),
        min_samples=MIN_SYSTEMS_BATCH_LAST,
        is_batch_last=True,
    )


def _has_large_work_arrays(kernel: Plan) -> bool:
    """Return whether a kernel has work arrays of symbolic size, which should stay in the cache.
    False for loops over time: blocks of few samples would repeat the products of each step."""
    steps = [step for plan in (kernel, *kernel.variants) for step in plan.steps]
    if any(isinstance(step, Recurrence) for step in steps):
        return False
    work = [buffer for step in steps if isinstance(step, Allocate) for buffer in step.buffers]
    return any(size.free_symbols for buffer in work for size in buffer.shape)


def _solves_systems(nodes: Sequence[ir.Node], samples: sympy.Symbol) -> bool:
    """Return whether each sample has a system of equations of symbolic size, and all nodes can be
    computed in the batch-last layout."""
    operations = [node for node in nodes if isinstance(node, ir.Apply) and samples in node.stack]
    factored = [node for node in operations if node.operation.factor_kernel]
    unfactored = [node for node in operations if node not in factored]
    sizes = sympy.Tuple(*(size for node in factored for size in node.arguments[0][0].shape[1:]))
    return (
        bool(sizes.free_symbols)
        and all(node.stack == (samples,) for node in factored)
        and all(supports_batch_last(node, samples) for node in unfactored)
    )
