"""The transpose of a linear expression: the VJP from the JVP, which is linear in the tangents.

Walks the expression from its root to the tangent leaf and hands each node's cotangent down;
a node used several times is handed the sum once, so the result is no larger than the JVP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    is_zero,
    topological,
    zeros,
)
from derivatrix.runtime.errors import UnsupportedError


def transpose(
    roots: Sequence[Node], leaves: Sequence[Leaf], cotangents: Sequence[Node]
) -> list[Node]:
    """Pull the cotangents of `roots` back to `leaves`, in which these are linear, and add them.

    Raises UnsupportedError for an operation on a varying argument that has no transpose rule.
    """
    order = topological(roots)
    varying = depending(order, leaves)
    contributions: dict[Node, list[Node]] = {node: [] for node in varying}
    joint = _joint_outputs(order, varying)
    for root, cotangent in zip(roots, cotangents, strict=True):
        if root in varying:
            contributions[root].append(cotangent)
    # In this order, all contributions to the cotangent of a node precede the node itself.
    for node in reversed(order):
        if node not in varying or isinstance(node, Leaf):
            continue
        outputs = joint.get(node, [node])
        if node is not outputs[0] or not any(contributions[output] for output in outputs):
            continue
        node_cotangents = {output: _summed(contributions[output], output) for output in outputs}
        for child, contribution in _pull_back(node, node_cotangents, varying):
            contributions[child].append(contribution)
    return [_summed(contributions.get(leaf, []), leaf) for leaf in leaves]


def _joint_outputs(order: Sequence[Node], varying: set[Node]) -> dict[Node, list[Node]]:
    """Map each varying output of an operation with a joint rule to all of these outputs, in the
    order of evaluation: when the first of them is reached, the cotangents of all are complete."""
    outputs: dict[Node, list[Node]] = {}
    for node in order:
        if isinstance(node, Apply) and node.operation.adjoint is not None and node in varying:
            outputs.setdefault(node.sibling(0), []).append(node)
    return {node: group for group in outputs.values() for node in group}


def _summed(contributions: Sequence[Node], node: Node) -> Node:
    """Add the contributions to the cotangent of `node`."""
    if len(contributions) == 1:
        return contributions[0]
    return Sum(tuple(contributions), node.shape) if contributions else zeros(node.shape)


def _pull_back(
    node: Node, cotangents: Mapping[Node, Node], varying: set[Node]
) -> list[tuple[Node, Node]]:
    """List the varying children of `node`, each with the contribution to its cotangent. cotangents:
    that of `node`, and those of the other outputs of an operation with a joint rule."""
    match node:
        case Sum():
            return [(term, cotangents[node]) for term in node.terms if term in varying]
        case Einsum():
            return [_transpose_product(node, cotangents[node], varying)]
        case Apply():
            return _transpose_operation(node, cotangents, varying)
    raise UnsupportedError(f"{type(node).__name__} is not linear, so it has no transpose")


def _transpose_product(node: Einsum, cotangent: Node, varying: set[Node]) -> tuple[Node, Node]:
    """Contract `cotangent` with all factors but the varying one. A label that this one repeats, as
    in a diagonal, becomes a delta."""
    varying_factors = [factor for factor in node.factors if factor[0] in varying]
    if len(varying_factors) != 1:
        raise UnsupportedError("a product of two tangents is not linear")
    target, labels = varying_factors[0]
    factors: list[tuple[Node, tuple]] = [
        factor for factor in node.factors if factor[0] not in varying
    ]
    output: list[object] = []
    for label in labels:
        if label in output:
            repeated = ("repeated", len(output))
            factors.append((Delta(node.sizes[label]), (label, repeated)))
            output.append(repeated)
        else:
            output.append(label)
    factors.append((cotangent, tuple(range(node.ndim))))
    sizes = {label: node.sizes[label] for label in labels}
    return target, einsum(factors, output, node.coefficient, sizes)


def _transpose_operation(
    node: Apply, cotangents: Mapping[Node, Node], varying: set[Node]
) -> list[tuple[Node, Node]]:
    """List the varying arguments of an operation, each with the contribution to its cotangent."""
    operation = node.operation
    point, values = core_point(node)
    placeholders: list[Array] = []
    for position, result in enumerate(point.results):
        cotangent = cotangents.get(node.sibling(position))
        if cotangent is None or is_zero(cotangent):
            placeholders.append(Array(zeros(result.node.shape)))
        elif node.stack:
            leaf = Leaf(f"cotangent {position}", result.node.shape, role="placeholder")
            values[leaf] = cotangent
            placeholders.append(Array(leaf))
        else:
            placeholders.append(Array(cotangent))
    joint_shares = operation.adjoint(point, placeholders) if operation.adjoint else {}
    contributions = []
    for position, (argument, labels) in enumerate(node.arguments):
        if argument not in varying:
            continue
        if position in joint_shares:
            share = joint_shares[position]
        elif position in operation.transposes:
            share = operation.transposes[position](point, placeholders[node.output])
        else:
            raise UnsupportedError(
                f"{operation.name} has no rule for its transpose by argument {position}"
            )
        stacked = broadcast_over_stack(share.node, values, node)
        contributions.append((argument, _sum_over_stack(stacked, labels, node)))
    return contributions


def _sum_over_stack(contribution: Node, labels: tuple[int, ...], node: Apply) -> Node:
    """Sum over the stacked axes that the argument lacks; order the others as `labels`."""
    if labels == tuple(range(len(node.stack))):
        return contribution
    core = [("core", axis) for axis in range(contribution.ndim - len(node.stack))]
    return einsum([(contribution, (*range(len(node.stack)), *core))], [*labels, *core])
