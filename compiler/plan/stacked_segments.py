"""Loops over segments as kernels run them: the samples of a batch, and other stacked axes, within
the segments, so that one product serves all of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from derivatrix.compiler.differentiate.segments import segmented, whole_loop
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.graph import rebuilt, transformed
from derivatrix.compiler.ir.operation import Segments
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.simplify import simplify


def with_segments(roots: Sequence[ir.Node], is_cpu: bool = True) -> list[ir.Node]:
    """Rewrite the loops over segments below `roots` as kernels run them: stacked axes inside the
    segments; on a device as plain loops."""
    if not is_cpu:
        nodes = transformed(roots, whole_loop)
        return [*roots] if nodes == [*roots] else with_segments(simplify(nodes), is_cpu)
    summed = _summed_over_stack(roots)
    new: dict[ir.Node, ir.Node] = {}
    for node in ir.topological(roots):
        if isinstance(node, ir.Einsum) and not summed.isdisjoint(node.children):
            new[node] = _with_sums(node, new, summed)
            continue
        new[node] = changed = rebuilt(node, new)
        if isinstance(node, ir.Apply) and isinstance(changed, ir.Apply) and _is_stacked(changed):
            positions = range(len(node.operation.outputs))
            new[node] = _with_stack_inside(
                changed, [n for n in positions if node.sibling(n) in summed]
            )
    nodes = [new[root] for root in roots]
    return nodes if nodes == [*roots] else simplify(nodes)


def _is_stacked(node: ir.Apply) -> bool:
    return node.operation.segments is not None and bool(node.stack)


def _with_stack_inside(node: ir.Apply, summed: Collection[int]) -> ir.Node:
    """Move the stacked axes of a loop over segments into the segments. summed: positions of
    results that are summed over these axes."""
    segments = node.operation.segments
    assert segments is not None
    labels = {leaf: axes for leaf, (_, axes) in zip(segments.operands, node.arguments, strict=True)}
    stacked = _stacked(segments, labels, node.stack, summed)
    if stacked is None:
        return with_segments([whole_loop(node)])[0]
    arguments: list[ir.Node] = []
    depth = len(node.stack)
    for leaf, new_leaf, (argument, axes) in zip(
        segments.operands, stacked.operands, node.arguments, strict=True
    ):
        if leaf in segments.series:
            argument = time_first(argument, len(axes))
        elif new_leaf.ndim == leaf.ndim + depth:
            argument = broadcast(argument, axes, node.stack)
        arguments.append(argument)
    operands = tuple((argument, ()) for argument in arguments)
    result = ir.Apply(segmented(stacked), operands, (), (), node.output)
    position = node.output - len(segments.following)
    is_series = 0 <= position < len(segments.outputs)
    return stack_first(result, depth) if is_series else result


def _stacked(
    segments: Segments,
    labels: Mapping[ir.Leaf, ir.Labels],
    stack: Shape,
    summed: Collection[int] = (),
) -> Segments | None:
    """Give the placeholders of a loop over segments stacked axes, after the time in series; None if
    the forward loop, whose carries an adjoint reads, has only some of these axes. labels: the
    stacked axes of each placeholder. summed: positions of results that are summed over these
    axes."""
    every_axis = tuple(range(len(stack)))
    labels = {**labels, **dict.fromkeys(segments.carries, every_axis)}
    forward = segments.forward
    if forward is not None and forward.segments is not None:
        stacked_axes = {label for leaf in forward.segments.operands for label in labels[leaf]}
        if stacked_axes and stacked_axes != {*every_axis}:
            return None
        if stacked_axes:
            labels |= dict.fromkeys(segments.forward_carries, every_axis)
            stacked = _stacked(forward.segments, labels, stack)
            assert stacked is not None
            forward = segmented(stacked)
    new: dict[ir.Leaf, ir.Leaf] = {}
    replacements: dict[ir.Node, ir.Node] = {}
    for leaf in segments.operands:
        axes = tuple(stack[label] for label in labels[leaf])
        is_series = leaf in segments.series
        shape = leaf.shape[:is_series] + axes + leaf.shape[is_series:]
        new[leaf] = ir.Leaf(leaf.name, shape, leaf.structure, leaf.role)
        if axes:
            stacked_leaf = stack_first(new[leaf], len(axes)) if is_series else new[leaf]
            replacements[leaf] = broadcast(stacked_leaf, labels[leaf], stack)

    def over_stack(results: Sequence[ir.Node]) -> list[ir.Node]:
        return [
            after if after.ndim > result.ndim else broadcast(after, (), stack)
            for after, result in zip(substitute(results, replacements, stack), results, strict=True)
        ]

    outputs = [time_first(output, len(stack)) for output in over_stack(segments.outputs)]
    sums_start = len(segments.following + segments.outputs)
    sums = [
        _summed(part, len(stack)) if position in summed else part
        for position, part in enumerate(over_stack(segments.sums), sums_start)
    ]
    results = simplify([*over_stack(segments.following), *outputs, *sums])
    carry_count = len(segments.carries)
    return replace(
        segments,
        carries=tuple(new[leaf] for leaf in segments.carries),
        series=tuple(new[leaf] for leaf in segments.series),
        parameters=tuple(new[leaf] for leaf in segments.parameters),
        following=tuple(results[:carry_count]),
        outputs=tuple(results[carry_count:sums_start]),
        sums=tuple(results[sums_start:]),
        forward=forward,
    )


def _summed(node: ir.Node, depth: int) -> ir.Node:
    """Sum over the first `depth` axes."""
    axes = range(node.ndim)
    return ir.einsum([(node, axes)], axes[depth:])


def _summed_over_stack(roots: Sequence[ir.Node]) -> set[ir.Node]:
    """Collect the sums of stacked loops over segments that are only read in sums over the stack, as
    cotangents of parameters that all samples share are."""
    order = ir.topological(roots)
    readers: dict[ir.Node, list[ir.Node]] = {}
    for reader in order:
        for child in reader.children:
            readers.setdefault(child, []).append(reader)

    def is_sum(node: ir.Apply) -> bool:
        segments = node.operation.segments
        return segments is not None and node.output >= len(segments.following + segments.outputs)

    return {
        node
        for node in order
        if isinstance(node, ir.Apply) and _is_stacked(node) and is_sum(node) and node not in roots
        if all(_sums_over_stack(reader, node) for reader in readers[node])
    }


def _sums_over_stack(reader: ir.Node, node: ir.Apply) -> bool:
    """Return whether a node reads another one once, and as the sum over all of its stacked axes."""
    if not isinstance(reader, ir.Einsum):
        return False
    labels = [axes for part, axes in reader.factors if part is node]
    stack = labels[0][: len(node.stack)]
    other_labels = [label for part, axes in reader.factors if part is not node for label in axes]
    outside_stack = {*other_labels, *labels[0][len(stack) :]}
    is_free = len({*stack}) == len(stack) and outside_stack.isdisjoint(stack)
    return len(labels) == 1 and is_free and all(label >= reader.ndim for label in stack)


def _with_sums(
    node: ir.Einsum, new: Mapping[ir.Node, ir.Node], summed: Collection[ir.Node]
) -> ir.Node:
    """Rebuild a product that reads results in `summed`: loops have summed over their stacks."""
    factors = []
    left_out: set[int] = set()
    for part, labels in node.factors:
        depth = len(part.stack) if part in summed and isinstance(part, ir.Apply) else 0
        left_out.update(labels[:depth])
        factors.append((new[part], labels[depth:]))
    sizes = {n: size for n, size in enumerate(node.sizes) if n not in left_out}
    return ir.einsum(factors, range(node.ndim), node.coefficient, sizes)


def broadcast(node: ir.Node, labels: ir.Labels, stack: Shape) -> ir.Node:
    """Broadcast a node whose first axes have the `labels` to all axes of `stack`, in order."""
    core = [("core", axis) for axis in range(node.ndim - len(labels))]
    sizes = dict(enumerate(stack))
    return ir.einsum([(node, (*labels, *core))], [*range(len(stack)), *core], sizes=sizes)


def time_first(node: ir.Node, depth: int) -> ir.Node:
    """Move the axis of times before the `depth` stacked axes."""
    if not depth:
        return node
    stack, core = range(depth), range(depth + 1, node.ndim)
    return ir.einsum([(node, (*stack, "time", *core))], ("time", *stack, *core))


def stack_first(node: ir.Node, depth: int) -> ir.Node:
    """Move the axis of times after the `depth` stacked axes."""
    stack, core = range(depth), range(depth + 1, node.ndim)
    return ir.einsum([(node, ("time", *stack, *core))], (*stack, "time", *core))
