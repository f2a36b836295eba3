"""Lengths in loops: derivatives of loops where a length is zero.

A derivative of a loop has functions of lengths within its step and, stacked over time, outside of
it. They get limits or finite parts as others do (`simplify.finite_parts`), but for those of lengths
at whose zeros the step of the function's own loop has no finite slope."""

from __future__ import annotations

from collections.abc import Sequence

from derivatrix.compiler.differentiate.jvp import core_point
from derivatrix.compiler.differentiate.recurrence import (
    after_steps,
    before_steps,
    with_states,
)
from derivatrix.compiler.differentiate.segments import with_whole_loops
from derivatrix.compiler.ir.graph import transformed, with_derived_steps
from derivatrix.compiler.ir.nodes import Apply, Leaf, Node, topological
from derivatrix.compiler.ir.operation import Operation
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.simplify import simplify
from derivatrix.compiler.simplify.finite_parts import with_lengths, without_slopes
from derivatrix.compiler.simplify.lengths import fused


def with_lengths_in_loops(
    results: Sequence[Node], values: Sequence[Node], singular: Sequence[Node] = ()
) -> list[Node]:
    """Insert limits or finite parts of derivatives where lengths are zero, also in loops. singular:
    squares of further lengths at whose zeros `values` have no finite slope."""
    declared = {*topological(values)}

    def limited(node: Node) -> Node:
        if node in declared or not isinstance(node, Apply):
            return node
        return with_derived_steps(node, _limited_step)

    return with_lengths(
        transformed(results, limited), values, [*singular, *singular_lengths(values)]
    )


def _limited_step(operation: Operation, nodes: Sequence[Node]) -> list[Node]:
    if operation.loop is not None:
        return with_lengths_in_loops(nodes, (), operation.loop.singular)
    assert operation.segments is not None and operation.segments.forward is not None
    forward = operation.segments.forward.segments
    assert forward is not None
    return with_lengths_in_loops(nodes, forward.results)


def singular_lengths(values: Sequence[Node]) -> list[Node]:
    """List the squares of lengths at whose zeros values have no finite slope, and those in steps of
    their loops, at all times."""
    nodes = (*values, *with_whole_loops(values))
    lengths = {*without_slopes(nodes)}
    for node in topological(nodes):
        if isinstance(node, Apply) and node.operation.loop is not None:
            lengths.update(_at_all_times(node))
    return sorted(lengths, key=lambda node: node.key)


def _at_all_times(node: Apply) -> list[Node]:
    """Evaluate the singular lengths of a loop at all times."""
    loop = node.operation.loop
    assert loop is not None
    point, values = core_point(node)
    arguments = dict(zip(loop.operands, point.arguments, strict=True))
    after = [Leaf(f"{carry.name} after", carry.shape, role="placeholder") for carry in loop.carries]
    for carry, following, states in zip(loop.carries, after, point.results, strict=True):
        arguments[carry] = before_steps(states, loop.is_reversed)
        arguments[following] = after_steps(states, loop.is_reversed)
    arrays: dict[Node, Node] = {leaf: array.node for leaf, array in arguments.items()}
    lengths = [*loop.singular, *with_states(loop.singular, fused(loop.following), after)]
    lengths = substitute(lengths, arrays, (loop.length,))
    return simplify(substitute(lengths, values, node.stack))
