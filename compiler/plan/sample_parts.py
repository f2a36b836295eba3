"""Kernels whose results come sample by sample, so that several threads can share the work, and a
part of the samples can be computed at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.plan.memory import entries
from derivatrix.compiler.plan.nominal_sizes import product
from derivatrix.compiler.plan.sample_axis import (
    allows_samples_last,
    is_divisible,
    is_sum_over,
    rounded,
    uses_their_number,
    work,
)
from derivatrix.compiler.plan.solvers import FACTORED
from derivatrix.compiler.plan.steps import Columns, Parts, Plan

LEAST_SYSTEMS = 16
"""The least number of samples for which systems of equations are solved side by side."""
ENTRIES = 24
"""The most numbers that a sample may take in memory, over the number of samples: where there are
few and large ones, products within a sample by BLAS are faster."""
MOST_ENTRIES = 4500
"""The most numbers that a sample may take in memory: several have to be in the cache together."""


def parts(
    roots: Sequence[ir.Node], arguments: Sequence[ir.Leaf], columns: Callable[[sympy.Symbol], Plan]
) -> Parts | None:
    """How arguments are cut along their first axis so that a kernel computes a part of each of its
    outputs from a part of them; None where it does not. `roots` are pairwise contractions;
    `columns` makes the kernel that has the samples last in memory."""
    samples = roots[0].shape[0] if roots and roots[0].shape else None
    if samples is None or not samples.is_Symbol:
        return None
    nodes = ir.topological(roots)
    if not all(root.shape and root.shape[0] == samples for root in roots):
        return None
    if not is_divisible(arguments, nodes, samples):
        return None
    if any(is_sum_over(node, samples) or uses_their_number(node, samples) for node in nodes):
        return None
    sliced = tuple(bool(leaf.shape) and leaf.shape[0] == samples for leaf in arguments)
    works = [work(node) for node in nodes]
    total = sympy.Add(*works, *(product(root.shape) for root in roots))
    fixed = any(part.free_symbols and not part.has(samples) for part in works)
    made = Parts(sliced, rounded(sympy.expand(total)), fixed)
    if fixed or not _are_solved(nodes, samples):
        return made
    kernel = replace(columns(samples), parts=made)
    each = entries(kernel).coeff(samples, 1)
    return replace(made, columns=Columns(kernel, each, LEAST_SYSTEMS, ENTRIES, MOST_ENTRIES))


def _are_solved(nodes: Sequence[ir.Node], samples: sympy.Symbol) -> bool:
    """Whether there is a system of equations of each sample, of any size, and everything can be
    computed with the samples last in memory."""
    operations = [node for node in nodes if isinstance(node, ir.Apply) and samples in node.stack]
    factored = [node for node in operations if node.operation.name in FACTORED]
    others = [node for node in operations if node not in factored]
    sizes = sympy.Tuple(*(size for node in factored for size in node.arguments[0][0].shape[1:]))
    return (
        bool(sizes.free_symbols)
        and all(node.stack == (samples,) for node in factored)
        and all(allows_samples_last(node, samples) for node in others)
    )
