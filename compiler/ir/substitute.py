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
        if node not in new:
            new[node], stacked[node] = _rebuild(node, new, stacked, stack)
    return [new[root] for root in roots]


def _rebuild(
    node: Node, new: Mapping[Node, Node], stacked: Mapping[Node, bool], stack: Shape
) -> tuple[Node, bool]:
    if all(new[child] is child for child in node.children):
        return node, False
    deep = any(stacked[child] for child in node.children)
    extra = stack if deep else ()
    match node:
        case Einsum():
            factors = _relabelled(node.factors, new, stacked, extra)
            sizes = extra + node.sizes
            return Einsum(node.coefficient, factors, sizes, len(extra) + node.ndim), deep
        case Sum():
            terms = tuple(_lift(term, new, stacked, extra) for term in node.terms)
            return Sum(terms, extra + node.shape), deep
        case Map():
            arguments = tuple(_lift(argument, new, stacked, extra) for argument in node.arguments)
            return Map(node.expression, arguments), deep
        case Apply():
            stacked_arguments = _relabelled(node.arguments, new, stacked, extra)
            all_stacked = extra + node.stack
            return Apply(
                node.operation, stacked_arguments, all_stacked, node.parameters, node.output
            ), deep
    raise TypeError(f"no substitution in {node!r}")


def _relabelled(
    factors: Iterable[Factor], new: Mapping[Node, Node], stacked: Mapping[Node, bool], extra: Shape
) -> tuple[Factor, ...]:
    """Replace labelled nodes, and shift their labels behind those of the leading axes."""
    leading = tuple(range(len(extra)))
    return tuple(
        (
            new[node],
            (leading if stacked[node] else ()) + tuple(label + len(extra) for label in labels),
        )
        for node, labels in factors
    )


def _lift(node: Node, new: Mapping[Node, Node], stacked: Mapping[Node, bool], extra: Shape) -> Node:
    if not extra or stacked[node]:
        return new[node]
    rank = node.ndim
    output = [("stack", axis) for axis in range(len(extra))]
    sizes = dict(zip(output, extra, strict=True))
    return einsum([(new[node], range(rank))], [*output, *range(rank)], sizes=sizes)
