"""Which nodes are computed once into memory, and which are expanded where they are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

from derivatrix.compiler import ir
from derivatrix.compiler.plan.scalars import cost
from derivatrix.compiler.plan.sizes import nominal
from derivatrix.compiler.plan.structure import bind, gather, split

CHEAP = 3
COSTLY = 8


@lru_cache(maxsize=65536)
def is_elementwise(node: ir.Node) -> bool:
    """Whether each entry is arithmetic of a fixed number of entries of other nodes."""
    match node:
        case ir.Map():
            return True
        case ir.Sum():
            return not node.terms or any(is_elementwise(term) for term in node.terms)
        case ir.Einsum():
            binding = gather(node)
            return not (binding.loops or binding.scattered or binding.divided)
    return isinstance(node, ir.Leaf | ir.Constant | ir.Structural)


def stored(roots: Sequence[ir.Node]) -> set[ir.Node]:
    """The nodes that need memory: contractions, results of operations, and elementwise nodes
    that are dear and read in several loops, or in loops over more axes than they have."""
    found = set(roots)
    readers: dict[ir.Node, set[ir.Node]] = {root: {root} for root in roots}
    wide: set[ir.Node] = set()
    for node in reversed(ir.topological(roots)):
        if isinstance(node, ir.Leaf | ir.Constant | ir.Structural):
            continue
        repeated = len(readers.get(node, ())) > 1 and _work(node) > CHEAP
        spread = node in wide and _work(node) >= COSTLY
        if not is_elementwise(node) or repeated or spread:
            found.add(node)
        kept = {node} if node in found else readers[node]
        for child in node.children:
            readers.setdefault(child, set()).update(kept)
            if (child.ndim and _volume(node) > _volume(child)) or (
                node in wide and node not in found
            ):
                wide.add(child)
    return found - _single(found - {*roots}, found)


def _single(nodes: Iterable[ir.Node], found: set[ir.Node]) -> set[ir.Node]:
    """The elementwise nodes that are one operation on stored ones, so read in about its time."""

    def work(node: ir.Node) -> int:
        below = (work(child) for child in node.children if child not in found)
        return _own_work(node) + sum(below)

    return {node for node in nodes if is_elementwise(node) and work(node) <= 1}


@lru_cache(maxsize=65536)
def _volume(node: ir.Node) -> float:
    """The points of the loops that compute a node."""
    if not isinstance(node, ir.Einsum):
        return math.prod(nominal(size) for size in node.shape)
    constraints, _ = split(node)
    loops = bind(constraints, node.sizes, range(len(node.sizes)), {}).loops
    return math.prod(nominal(node.sizes[label]) for label in loops)


@lru_cache(maxsize=65536)
def _work(node: ir.Node) -> int:
    """Operations an entry, all that is elementwise below included."""
    if not is_elementwise(node):
        return 0
    return _own_work(node) + sum(_work(child) for child in node.children)


def _own_work(node: ir.Node) -> int:
    match node:
        case ir.Map():
            return cost(node.expression)
        case ir.Sum():
            return len(node.terms) - 1
        case ir.Einsum():
            return len(node.factors) - (node.coefficient == 1)
    return 0
