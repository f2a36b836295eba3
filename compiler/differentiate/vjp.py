"""The transpose of a linear expression: from the JVP, linear in a tangent, to the VJP.

Walks the expression from its root to the tangent leaf and hands each node's cotangent down;
a node used several times is handed the sum once, so the result is no larger than the JVP.
"""

from __future__ import annotations

from collections.abc import Sequence

from derivatrix.compiler.differentiate.jvp import broadcast_over_stack, core_point
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.graph import depending
from derivatrix.compiler.ir.nodes import (
    Apply,
    Delta,
    Einsum,
    Leaf,
    Node,
    Sum,
    einsum,
    topological,
    zeros,
)
from derivatrix.runtime.errors import UnsupportedError


def transpose(root: Node, leaves: Sequence[Leaf], cotangent: Node) -> list[Node]:
    """For `root`, linear in `leaves` together, the cotangent of each leaf.

    cotangent: of the root's shape. Raises UnsupportedError for an operation that is linear in
    an argument and has no rule for its transpose.
    """
    order = topological([root])
    varying = depending(order, leaves)
    contributions: dict[Node, list[Node]] = {node: [] for node in varying}
    if root in varying:
        contributions[root].append(cotangent)
    for node in reversed(order):
        if node not in varying or isinstance(node, Leaf) or not contributions[node]:
            continue
        incoming = _total(contributions[node], node)
        for child, share in _shares(node, incoming, varying):
            contributions[child].append(share)
    return [_total(contributions.get(leaf, []), leaf) for leaf in leaves]


def _total(parts: Sequence[Node], node: Node) -> Node:
    if len(parts) == 1:
        return parts[0]
    return Sum(tuple(parts), node.shape) if parts else zeros(node.shape)


def _shares(node: Node, incoming: Node, varying: set[Node]) -> list[tuple[Node, Node]]:
    match node:
        case Sum():
            return [(term, incoming) for term in node.terms if term in varying]
        case Einsum():
            return [_einsum(node, incoming, varying)]
        case Apply():
            return _apply(node, incoming, varying)
    raise UnsupportedError(f"{type(node).__name__} is not linear, so it has no transpose")


def _einsum(node: Einsum, incoming: Node, varying: set[Node]) -> tuple[Node, Node]:
    linear = [i for i, (factor, _) in enumerate(node.factors) if factor in varying]
    if len(linear) != 1:
        raise UnsupportedError("a product of two tangents is not linear")
    target, labels = node.factors[linear[0]]
    others: list[tuple[Node, tuple]] = [
        factor for i, factor in enumerate(node.factors) if i != linear[0]
    ]
    output: list[object] = []
    for label in labels:
        if label in output:
            repeated = ("repeated", len(output))
            others.append((Delta(node.sizes[label]), (label, repeated)))
            output.append(repeated)
        else:
            output.append(label)
    others.append((incoming, tuple(range(node.ndim))))
    sizes = {label: node.sizes[label] for label in labels}
    return target, einsum(others, output, node.coefficient, sizes)


def _apply(node: Apply, incoming: Node, varying: set[Node]) -> list[tuple[Node, Node]]:
    operation = node.operation
    shares = []
    for position, (argument, labels) in enumerate(node.arguments):
        if argument not in varying:
            continue
        rule = operation.transposes.get(position)
        if rule is None:
            raise UnsupportedError(
                f"{operation.name} has no rule for its transpose by argument {position}"
            )
        point, actual = core_point(node, {})
        core: Node = incoming
        if node.stack:
            core = Leaf("cotangent", incoming.shape[len(node.stack) :], role="placeholder")
            actual[core] = incoming
        share = broadcast_over_stack(rule(point, Array(core)).node, actual, node)
        shares.append((argument, _unstack(share, labels, node)))
    return shares


def _unstack(share: Node, labels: tuple[int, ...], node: Apply) -> Node:
    """Sum over the stacked axes that the argument does not have, and put its own in order."""
    if labels == tuple(range(len(node.stack))):
        return share
    core = [("core", axis) for axis in range(share.ndim - len(node.stack))]
    return einsum([(share, (*range(len(node.stack)), *core))], [*labels, *core])
