"""Kernels whose results come sample by sample, so that several threads can share the work, and a
part of the samples can be computed at a time."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from derivatrix.compiler import ir
from derivatrix.compiler.plan.samples import (
    added,
    counts,
    divisible,
    rounded,
    sample_by_sample,
    work,
)
from derivatrix.compiler.plan.sizes import product
from derivatrix.compiler.plan.steps import Parts


def parts(roots: Sequence[ir.Node], arguments: Sequence[ir.Leaf]) -> Parts | None:
    """How arguments are cut along their first axis so that a kernel computes a part of each of its
    outputs from a part of them; None where it does not. `roots` are associated products."""
    samples = roots[0].shape[0] if roots and roots[0].shape else None
    if samples is None or not samples.is_Symbol:
        return None
    if not all(divisible(leaf, samples) for leaf in arguments):
        return None
    nodes = ir.topological(roots)
    if not all(root.shape and root.shape[0] == samples for root in roots):
        return None
    if not all(sample_by_sample(node, samples) for node in nodes):
        return None
    if any(added(node, samples) or counts(node, samples) for node in nodes):
        return None
    sliced = tuple(bool(leaf.shape) and leaf.shape[0] == samples for leaf in arguments)
    works = [work(node) for node in nodes]
    total = sympy.Add(*works, *(product(root.shape) for root in roots))
    fixed = any(part.free_symbols and not part.has(samples) for part in works)
    return Parts(sliced, rounded(sympy.expand(total)), fixed)
