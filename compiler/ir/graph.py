"""Helpers of passes over graphs of nodes: the children of a node, the node on other children, and
whole graphs rebuilt from the leaves up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.nodes import (
    Apply,
    Einsum,
    Map,
    Node,
    Sum,
    einsum,
    full,
    literal,
    topological,
)


def references(node: Node) -> list[Node]:
    """List the children of a node, as often as it reads them."""
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
    """Replace the children of a node by `new`; `resized` changes its sizes to match."""
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
    """Apply `change` to each node from the leaves up, and return the new roots."""
    new: dict[Node, Node] = {}
    for node in topological(roots):
        new[node] = change(rebuilt(node, new))
    return [new[root] for root in roots]


def depending(order: Iterable[Node], leaves: Iterable[Node]) -> set[Node]:
    """Return the leaves and the nodes of `order`, a topological order, that depend on them."""
    dependents = set(leaves)
    for node in order:
        if any(child in dependents for child in node.children):
            dependents.add(node)
    return dependents


@lru_cache(maxsize=65536)
def masked(node: Node) -> Node:
    """Write an operation that is a mask as the product of its argument and that mask."""
    if not isinstance(node, Apply) or not node.operation.is_mask:
        return node
    ((argument, labels),) = node.arguments
    if literal(argument) is not None:
        return node
    core = tuple(range(len(node.stack), node.ndim))
    ones = full(1, tuple(node.shape[axis] for axis in core))
    mask = Apply(node.operation, ((ones, ()),), (), node.parameters, node.output)
    sizes = dict(enumerate(node.shape))
    return einsum([(argument, (*labels, *core)), (mask, core)], range(node.ndim), sizes=sizes)
