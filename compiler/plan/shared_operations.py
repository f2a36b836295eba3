"""Sharing of operations on the same arguments: beside eigh(S), eigvalsh(S) is its first output."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from derivatrix.compiler.differentiate.jvp import broadcast_over_stack, core_point
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.graph import rebuilt


def share_operations(roots: Sequence[ir.Node], has_joint_kernels: bool) -> list[ir.Node]:
    """Compute operations on the same arguments by the one that they follow from.

    has_joint_kernels: whether that operation may be a new one, such as the operation that yields
    both softmax and logsumexp.
    """
    operations = defaultdict(set)
    order = ir.topological(roots)
    for node in order:
        if isinstance(node, ir.Apply):
            operations[node.arguments, node.parameters].add(node.operation)
    new: dict[ir.Node, ir.Node] = {}
    for node in order:
        new[node] = changed = rebuilt(node, new)
        if isinstance(node, ir.Apply) and isinstance(changed, ir.Apply):
            present = operations[node.arguments, node.parameters]
            for combined, rule in node.operation.follows_from.items():
                is_usable = has_joint_kernels or combined in present
                parts = [part for part in present if combined in (part, *part.follows_from)]
                if is_usable and len(parts) > 1:
                    joint = ir.Apply(combined, changed.arguments, changed.stack, changed.parameters)
                    point, values = core_point(joint)
                    new[node] = broadcast_over_stack(rule(point).node, values, joint)
                    break
    return [new[root] for root in roots]
