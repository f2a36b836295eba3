"""Sharing of operations on the same arguments: beside eigh(S), eigvalsh(S) is its first output."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from derivatrix.compiler.differentiate.jvp import broadcast_over_stack, core_point
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.arrays import Array, multiply, sum_over
from derivatrix.compiler.ir.graph import rebuilt
from derivatrix.compiler.ir.operation import Operation, Point
from derivatrix.compiler.operations.eigen import EIG, EIGH, EIGVALS, EIGVALSH
from derivatrix.compiler.operations.polar import POLAR
from derivatrix.compiler.operations.singular import NUCLEAR, SVD, SVDVALS
from derivatrix.compiler.operations.softmax import (
    LOG_SOFTMAX,
    LOGSUMEXP,
    SOFTMAX,
    SOFTMAX_AND_LOG_SOFTMAX,
    SOFTMAX_AND_LOGSUMEXP,
)

Rule = Callable[[Point], Array]
"""The result of an operation, by the point of another operation on the same arguments."""
Shared = dict[Operation, dict[Operation, Rule]]
"""Operations that yield the results of others, and the rules of these."""

DECOMPOSITIONS: Shared = {
    EIGH: {EIGVALSH: lambda at: at.results[0]},
    EIG: {EIGVALS: lambda at: at.results[0]},
    SVD: {SVDVALS: lambda at: at.results[1]},
    POLAR: {NUCLEAR: lambda at: sum_over(multiply(at.result, at.arguments[0]))},
}
SOFTMAXES: Shared = {
    SOFTMAX_AND_LOGSUMEXP: {
        SOFTMAX: lambda at: at.results[0],
        LOGSUMEXP: lambda at: at.results[1],
    },
    SOFTMAX_AND_LOG_SOFTMAX: {
        SOFTMAX: lambda at: at.results[0],
        LOG_SOFTMAX: lambda at: at.results[1],
    },
}
"""Their helper kernels exist for the CPU. On a device, kernels along rows are fused."""


def share_operations(roots: Sequence[ir.Node], shared: Shared) -> list[ir.Node]:
    """Compute operations on the same arguments by the one that yields all of their results."""
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
            for operation, rules in shared.items():
                if node.operation in rules and len(present & {operation, *rules}) > 1:
                    whole = ir.Apply(operation, changed.arguments, changed.stack)
                    point, values = core_point(whole)
                    result = rules[node.operation](point).node
                    new[node] = broadcast_over_stack(result, values, whole)
                    break
    return [new[root] for root in roots]
