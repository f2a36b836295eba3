"""What passes over graphs of nodes have in common: what a node reads, the same node on other
children, and whole graphs rebuilt from the leaves up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.nodes import Apply, Einsum, Map, Node, Sum, topological


def references(node: Node) -> list[Node]:
    """The children of a node, as often as it reads them."""
    match node:
        case Einsum():
            return [factor for factor, _ in node.factors]
        case Sum():
            return list(node.terms)
        case Map():
            return list(node.arguments)
        case Apply():
            return [argument for argument, _ in node.arguments]
    return []


def rebuilt(
    node: Node, new: Mapping[Node, Node], resized: Callable[[Shape], Shape] = lambda shape: shape
) -> Node:
    """The same node on other children, `resized` giving its sizes where these have others."""
    match node:
        case Einsum():
            factors = tuple((new[factor], labels) for factor, labels in node.factors)
            return Einsum(node.coefficient, factors, resized(node.sizes), node.ndim)
        case Sum():
            return Sum(tuple(new[term] for term in node.terms), resized(node.shape))
        case Map():
            return Map(node.expression, tuple(new[argument] for argument in node.arguments))
        case Apply():
            arguments = tuple((new[argument], labels) for argument, labels in node.arguments)
            stack = resized(node.stack)
            return Apply(node.operation, arguments, stack, node.parameters, node.output)
    return node


def transformed(roots: Sequence[Node], change: Callable[[Node], Node]) -> list[Node]:
    """The roots with what `change` makes of each node, its children being changed already."""
    new: dict[Node, Node] = {}
    for node in topological(roots):
        new[node] = change(rebuilt(node, new))
    return [new[root] for root in roots]


def depending(order: Iterable[Node], leaves: Iterable[Node]) -> set[Node]:
    """Those of nodes in topological order that are made of one of the leaves, and these."""
    found = set(leaves)
    for node in order:
        if any(child in found for child in node.children):
            found.add(node)
    return found
