"""Replacement of leaves by other nodes, which may have further leading axes.

One pass serves two ends: a batch axis is an input replaced by one with a leading axis, and a
Jacobian is the JVP with its tangent replaced by a basis of tangents. Nodes that depend on a
replaced leaf get the same leading axes; einsum labels carry them through, and operations of the
registry take them as stacked axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.graph import rebuilt
from derivatrix.compiler.ir.nodes import Apply, Einsum, Factor, Map, Node, Sum, einsum, topological


def substitute(
    roots: Sequence[Node], replacements: Mapping[Any, Node], stack: Shape = ()
) -> list[Node]:
    """Replace each key of `replacements` by its value, whose shape is the key's, or the key's after
    the leading axes `stack`. A root that depends on no stacked value comes back without these
    axes."""
    new: dict[Node, Node] = dict(replacements)
    stacked = {node: value.ndim > node.ndim for node, value in replacements.items()}
    for node in topological(roots):
        if node in new:
            continue
        stacked[node] = any(stacked[child] for child in node.children)
        if stacked[node]:
            new[node] = _stacked(node, new, stacked, stack)
        else:
            is_unchanged = all(new[child] is child for child in node.children)
            new[node] = node if is_unchanged else rebuilt(node, new)
    return [new[root] for root in roots]


def _stacked(
    node: Node, new: Mapping[Node, Node], stacked: Mapping[Node, bool], stack: Shape
) -> Node:
    """Rebuild a node on children of which at least one has the leading axes `stack`."""

    def broadcast(child: Node) -> Node:
        if stacked[child]:
            return new[child]
        output = [("stack", axis) for axis in range(len(stack))]
        sizes = dict(zip(output, stack, strict=True))
        axes = range(child.ndim)
        return einsum([(new[child], axes)], [*output, *axes], sizes=sizes)

    def relabelled(factors: Iterable[Factor]) -> tuple[Factor, ...]:
        leading = tuple(range(len(stack)))
        return tuple(
            (new[child], leading * stacked[child] + tuple(label + len(stack) for label in labels))
            for child, labels in factors
        )

    match node:
        case Einsum():
            factors = relabelled(node.factors)
            return Einsum(node.coefficient, factors, stack + node.sizes, len(stack) + node.ndim)
        case Sum():
            return Sum(tuple(map(broadcast, node.terms)), stack + node.shape)
        case Map():
            return Map(node.expression, tuple(map(broadcast, node.arguments)))
        case Apply():
            arguments, axes = relabelled(node.arguments), stack + node.stack
            return Apply(node.operation, arguments, axes, node.parameters, node.output)
    raise TypeError(f"no substitution in {node!r}")
