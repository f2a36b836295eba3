"""Operations that multiply entry by entry with a mask, as products."""

from __future__ import annotations

from functools import lru_cache

from derivatrix.compiler.ir.nodes import Apply, Node, einsum, full, literal


@lru_cache(maxsize=65536)
def masked(node: Node) -> Node:
    """An operation that multiplies entry by entry with a mask, as that product."""
    if not isinstance(node, Apply) or node.operation.name not in MASKS:
        return node
    ((argument, labels),) = node.arguments
    if literal(argument) is not None:
        return node
    core = tuple(range(len(node.stack), node.ndim))
    ones = full(1, tuple(node.shape[axis] for axis in core))
    mask = Apply(node.operation, ((ones, ()),), (), node.parameters, node.output)
    sizes = dict(enumerate(node.shape))
    return einsum([(argument, (*labels, *core)), (mask, core)], range(node.ndim), sizes=sizes)


MASKS = frozenset({"half_lower"})
"""Operations that are linear and act on each entry by itself."""
