"""Replacement of sizes and names in whole graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy

from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.compiler.ir.nodes import Constant, Node, topological
from derivatrix.compiler.ir.operation import Operation


def resize(root: Node, sizes: Mapping[sympy.Symbol, Dimension]) -> Node:
    """Replace sizes at once in all nodes below `root`: in shapes, coefficients, parameters, and in
    the equations and loops of operations."""

    def resized(part: Any) -> Any:
        if isinstance(part, sympy.Expr) and not part.free_symbols.isdisjoint(sizes):
            return sympy.expand(part.xreplace(sizes))
        return part

    return with_parts(root, resized)


def rename(root: Node, names: Mapping[str, str]) -> Node:
    """Rename leaves at once in all nodes below `root`, and in the equations and loops of
    operations."""
    return with_parts(root, lambda part: names.get(part, part) if isinstance(part, str) else part)


def with_parts(
    root: Node,
    change: Callable[[Any], Any],
    change_node: Callable[[Node], Node] = lambda node: node,
) -> Node:
    """Change the sizes, names and other values that the nodes below `root` hold, also those in the
    equations and loops of operations, then each node."""
    new: dict[Node, Node] = {}

    def renewed(part: Any) -> Any:
        match part:
            case Node():
                return new[part] if part in new else with_parts(part, change, change_node)
            case tuple():
                return tuple(map(renewed, part))
            case Operation(maker=(make, arguments)):
                return make(*renewed(arguments))
        return change(part)

    for node in topological([root]):
        is_constant = isinstance(node, Constant)  # made of an array, not of its fields
        new[node] = node if is_constant else change_node(type(node)(*map(renewed, node.fields)))
    return new[root]
