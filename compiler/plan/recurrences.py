"""Loops over time as kernels run them: stacked axes inside the step, so that one product serves all
of them, and values that do not depend on the carries computed before the loop, where one product
serves all times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from derivatrix.compiler.differentiate.recurrence import over_time, run_recurrence
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.graph import depending, transformed
from derivatrix.compiler.ir.operation import Loop, Operation, Parameters, Point
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.plan.stacked_segments import (
    broadcast,
    stack_first,
    time_first,
    with_segments,
)
from derivatrix.compiler.plan.uses import is_elementwise
from derivatrix.compiler.simplify import simplify


def with_planned_loops(roots: Sequence[ir.Node]) -> list[ir.Node]:
    """Rewrite the loops below `roots` as kernels run them."""
    nodes = transformed(roots, _planned)
    # expressions before a loop are simplified again: there, equal sums can have another order
    return transformed(nodes, _in_order) if nodes != [*roots] else nodes


def _in_order(node: ir.Node) -> ir.Node:
    """Bring the terms of a sum into canonical order, in which equal sums are one node."""
    if not isinstance(node, ir.Sum):
        return node
    return ir.Sum(tuple(sorted(node.terms, key=lambda term: term.key)), node.shape)


def _planned(node: ir.Node) -> ir.Node:
    if isinstance(node, ir.Einsum):
        return _with_ranges(node)
    if not is_loop(node):
        return node
    return _unstacked(node) if node.stack else _hoisted(node)


def _ranged(node: ir.Node, left_out: Parameters) -> ir.Node:
    return ir.Apply(RANGE, ((node, ()),), (), left_out)


def _bounds(left_out: Parameters) -> tuple[int, int | None]:
    """Return the start and end of a range as Python's slices have them."""
    leading, trailing = left_out
    assert isinstance(leading, int) and isinstance(trailing, int)
    return leading, -trailing or None


def _range_shape(cores: Sequence[Shape], left_out: Parameters) -> tuple[Shape, ...]:
    start, end = _bounds(left_out)
    length, *axes = cores[0]
    return ((length - start + (end or 0), *axes),)


def _range_value(arguments: Sequence[np.ndarray], left_out: Parameters) -> tuple[np.ndarray, ...]:
    start, end = _bounds(left_out)
    return (arguments[0][start:end],)


def _range_text(arguments: Sequence[str], left_out: Parameters, output: int) -> str:
    start, end = _bounds(left_out)
    return f"{arguments[0]}[{start}:{'' if end is None else end}]"


def _range_differential(at: Point) -> tuple[Array, ...]:
    return (Array(_ranged(at.tangents[0].node, at.parameters)),)


RANGE: Operation = Operation(
    name="range_of_states",
    ranks=(1,),
    shapes=_range_shape,
    value=_range_value,
    differential=_range_differential,
    numpy=_range_text,
    unicode="{0}",
)
"""The states of a loop without some at the beginning and at the end, of parameters (how many at the
beginning, how many at the end): a part of their array, which products of matrices read without a
copy."""


def is_loop(node: ir.Node) -> TypeGuard[ir.Apply]:
    """Return whether a node is the states of a loop over time."""
    return isinstance(node, ir.Apply) and node.operation.loop is not None


def is_any_loop(node: ir.Node) -> bool:
    """Return whether a node is computed by a loop over time, or over segments."""
    return is_loop(node) or (isinstance(node, ir.Apply) and node.operation.segments is not None)


def is_stacked_loop(node: ir.Node) -> bool:
    """Return whether a node is computed by loops over time, one for each index of a stack."""
    return isinstance(node, ir.Apply) and bool(node.stack) and is_any_loop(node)


def is_range(node: ir.Node) -> bool:
    """Return whether a node is a range of the states of a loop."""
    return isinstance(node, ir.Apply) and node.operation is RANGE


def _with_ranges(node: ir.Einsum) -> ir.Node:
    """Replace products of states and a slice of their times by ranges of states."""
    for position, (part, labels) in enumerate(node.factors):
        if not isinstance(part, ir.Slice) or part.step != 1 or part.shape[0] == 1:
            continue
        selected, time = labels
        holders = [n for n, (_, axes) in enumerate(node.factors) if time in axes and n != position]
        if len(holders) != 1 or time < node.ndim:
            continue
        states, axes = _states(node.factors[holders[0]])
        if states is None or axes.index(time) != 0 or axes.count(time) > 1:
            continue
        left_out = part.start, part.shape[1] - part.start - part.shape[0]
        if not all(number.is_Integer for number in left_out):
            continue
        values = _ranged(states, tuple(map(int, left_out)))
        factors: list[ir.Factor] = [*node.factors]
        factors[holders[0]] = (values, (selected, *axes[1:]))
        del factors[position]
        sizes = dict(enumerate(node.shape))
        product = ir.einsum(factors, range(node.ndim), node.coefficient, sizes)
        is_whole = product.factors == ((values, (*range(values.ndim),)),)
        if is_whole and product.coefficient == 1 and product.shape == values.shape:
            return values
        return _with_ranges(product)
    return node


def _states(factor: ir.Factor) -> tuple[ir.Apply | None, ir.Labels]:
    """Return the states of a loop that a factor is, maybe with their axes in another order, and the
    labels of these axes; None for other factors."""
    node, labels = factor
    if isinstance(node, ir.Einsum) and len(node.factors) == 1 and node.coefficient == 1:
        inner, axes = node.factors[0]
        if sorted(axes) == [*range(node.ndim)]:
            node, labels = inner, tuple(labels[axis] for axis in axes)
    return (node if is_loop(node) and not node.stack else None), labels


def _unstacked(node: ir.Apply) -> ir.Node:
    """Move the stacked axes of a loop into its step."""
    loop = node.operation.loop
    assert loop is not None
    depth = len(node.stack)
    replacements: dict[ir.Node, ir.Node] = {}
    carries: dict[ir.Leaf, Array] = {}
    slices: dict[ir.Leaf, Array] = {}
    parameters: dict[ir.Leaf, Array] = {}
    names: dict[ir.Leaf, str] = {}
    for leaf, name, (argument, labels) in zip(
        loop.operands, loop.names, node.arguments, strict=True
    ):
        if leaf in loop.carries:
            argument, labels = broadcast(argument, labels, node.stack), tuple(range(depth))
        stack = tuple(node.stack[label] for label in labels)
        stacked_leaf = ir.Leaf(leaf.name, stack + leaf.shape, leaf.structure, leaf.role)
        names[stacked_leaf] = name
        if labels:
            replacements[leaf] = broadcast(stacked_leaf, labels, node.stack)
        if leaf in loop.carries:
            carries[stacked_leaf] = Array(argument)
        elif leaf in loop.slices:
            slices[stacked_leaf] = Array(time_first(argument, len(labels)))
        else:
            parameters[stacked_leaf] = Array(argument)
    following = [
        after if after.ndim > carry.ndim else broadcast(after, (), node.stack)
        for after, carry in zip(
            substitute(loop.following, replacements, node.stack), loop.carries, strict=True
        )
    ]
    states = run_recurrence(
        *(carries, slices, parameters, following, loop.length, loop.is_reversed), names=names
    )
    result = states[node.output].node
    assert isinstance(result, ir.Apply)
    return stack_first(_hoisted(result), depth)


def _hoisted(node: ir.Apply) -> ir.Node:
    """Compute before a loop those parts of its step that depend on no carry: functions of
    parameters once, products and operations of slices for all times at once."""
    loop = node.operation.loop
    assert loop is not None
    arguments: dict[ir.Node, ir.Node] = {
        leaf: argument for leaf, (argument, _) in zip(loop.operands, node.arguments, strict=True)
    }
    order = ir.topological(loop.following)
    carried = depending(order, loop.carries)
    timed = depending(order, loop.slices)
    hoisted = _outermost(loop, carried, timed)
    if not hoisted:
        return node
    placeholders = {
        part: ir.Leaf(f"hoisted {number}", part.shape, role="placeholder")
        for number, part in enumerate(hoisted)
    }
    by_time = [part for part in hoisted if part in timed]
    constant = [part for part in hoisted if part not in timed]
    slices = {leaf: Array(arguments[leaf]) for leaf in loop.slices}
    parameters = {leaf: Array(arguments[leaf]) for leaf in loop.parameters}
    stacked = over_time(by_time, arguments, loop.length)
    outside = [*(array.node for array in stacked), *substitute(constant, arguments)]
    outside = with_planned_loops(with_segments(simplify(outside)))
    computed = dict(zip((*by_time, *constant), outside, strict=True))
    slices |= {placeholders[part]: Array(computed[part]) for part in by_time}
    parameters |= {placeholders[part]: Array(computed[part]) for part in constant}
    carries = {leaf: Array(arguments[leaf]) for leaf in loop.carries}
    following = substitute(loop.following, placeholders)
    names = dict(zip(loop.operands, loop.names, strict=True))
    names |= dict.fromkeys(placeholders.values(), "a")
    states = run_recurrence(
        *(carries, slices, parameters, following, loop.length, loop.is_reversed), names=names
    )
    return states[node.output].node


def _outermost(loop: Loop, carried: set[ir.Node], timed: set[ir.Node]) -> list[ir.Node]:
    """List the largest parts of a step that are worth computing before the loop."""
    readers: dict[ir.Node, list[ir.Node]] = {}
    order = ir.topological(loop.following)
    for reader in order:
        for child in reader.children:
            readers.setdefault(child, []).append(reader)
    costly: dict[ir.Node, bool] = {}
    parts = []
    for part in order:
        if part in carried or isinstance(part, ir.Leaf | ir.Constant | ir.Structural):
            continue
        below = any(costly.get(child, False) for child in part.children)
        costly[part] = below or part not in timed or not is_elementwise(part)
        is_outermost = part in loop.following or any(r in carried for r in readers.get(part, ()))
        if is_outermost and costly[part] and ir.leaves([part]):
            parts.append(part)
    return parts
