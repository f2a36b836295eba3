"""Running sums, which are products with a triangle of ones: a loop that adds to each entry the one
before it, instead of a sum for each entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.plan.loop_nest import View, loops_around
from derivatrix.compiler.plan.steps import Load, LoopNest, Store


class RunningSum(NamedTuple):
    """The terms that are added up along an axis; is_reversed: from the last one to the first."""

    terms: ir.Node
    axis: int
    is_reversed: bool


def running_sum(node: ir.Einsum) -> RunningSum | None:
    """Split a running sum; None for other products."""
    for position, (factor, labels) in enumerate(node.factors):
        if not isinstance(factor, ir.Triangle) or factor.offset or len({*labels}) < 2:
            continue
        others = node.factors[:position] + node.factors[position + 1 :]
        for (axis, summed), is_reversed in ((labels, False), (labels[::-1], True)):
            is_free = axis < node.ndim and axis not in ir.labels_of(others)
            if is_free and summed >= node.ndim and node.sizes[axis] == node.sizes[summed]:
                output = [summed if label == axis else label for label in range(node.ndim)]
                sizes = {label: node.sizes[label] for label in output}
                terms = ir.einsum(others, output, node.coefficient, sizes)
                return RunningSum(terms, axis, is_reversed)
    return None


def has_running_sum(node: ir.Node) -> bool:
    """Return whether a node is a running sum, or a sum with one."""
    if isinstance(node, ir.Sum):
        return any(map(has_running_sum, node.terms))
    return isinstance(node, ir.Einsum) and running_sum(node) is not None


def running_nest(running: RunningSum, view: View, indices: Sequence[sympy.Symbol]) -> LoopNest:
    """Add to each entry of the terms in `view` the one before it. indices: names for those of the
    loops."""
    shape, axis = running.terms.shape, running.axis
    before, after = indices[axis], indices[axis] + 1
    if running.is_reversed:
        before, after = (shape[axis] - 1 - index for index in (before, after))
    source, target = (
        Load(view.buffer, view.indices([*indices[:axis], index, *indices[axis + 1 :]]))
        for index in (before, after)
    )
    # The loop along the axis has one round less than there are rows. So `row_shares` does not take
    # it for a loop over rows: its rounds read the row before, which another thread may have.
    extents = [size - 1 if position == axis else size for position, size in enumerate(shape)]
    order = sorted(range(len(shape)), key=view.axes.__getitem__)
    store = Store(target, source, accumulate=True)
    loops = [(indices[position], extents[position]) for position in order]
    return LoopNest(f"{target} += {source}", loops_around((store,), loops))
