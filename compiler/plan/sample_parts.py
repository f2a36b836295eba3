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
from derivatrix.compiler.plan.steps import BatchLast, Plan, Samples

MIN_SYSTEMS_BATCH_LAST = 16
"""Fewest samples for which systems of equations are solved in the batch-last layout."""
MAX_ENTRIES_PER_SAMPLE_RATIO = 24
"""Largest ratio of the entries of a sample to the number of samples in the batch-last layout: for
few large samples, BLAS within each sample is faster."""
MAX_ENTRIES_PER_SAMPLE = 4500
"""Largest number of entries of a sample in the batch-last layout: several samples must fit in the
cache together."""


def parts(
    roots: Sequence[ir.Node],
    arguments: Sequence[ir.Leaf],
    batch_last: Callable[[sympy.Symbol], Plan],
) -> Samples | None:
    """Partition a kernel along the first axis of its outputs; None if its samples depend on each
    other. `roots` are pairwise contractions; `batch_last` plans the kernel of that layout."""
    samples = roots[0].shape[0] if roots and roots[0].shape else None
    if samples is None or not samples.is_Symbol:
        return None
    nodes = ir.topological(roots)
    if not all(root.shape and root.shape[0] == samples for root in roots):
        return None
    if not is_separable(arguments, nodes, samples):
        return None
    if any(is_sum_over(node, samples) or uses_sample_count(node, samples) for node in nodes):
        return None
    sliced = tuple(bool(leaf.shape) and leaf.shape[0] == samples for leaf in arguments)
    node_ops = [operation_count(node) for node in nodes]
    ops = sympy.Add(*node_ops, *(product(root.shape) for root in roots))
    has_fixed_ops = any(count.free_symbols and not count.has(samples) for count in node_ops)
    partition = Samples(sliced, rounded_up(sympy.expand(ops)), has_fixed_ops)
    if has_fixed_ops or not _solves_systems(nodes, samples):
        return partition
    kernel = replace(batch_last(samples), partition=partition)
    layout = BatchLast(
        kernel,
        entries_per_sample=entries(kernel).coeff(samples, 1),
        min_samples=MIN_SYSTEMS_BATCH_LAST,
        max_ratio=MAX_ENTRIES_PER_SAMPLE_RATIO,
        max_entries=MAX_ENTRIES_PER_SAMPLE,
    )
    return replace(partition, batch_last=layout)


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
