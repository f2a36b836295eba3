"""Replacement of sizes by other sizes, in whole graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy

from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.compiler.ir.nodes import Constant, Node, topological
from derivatrix.compiler.ir.operation import Operation


def resize(root: Node, sizes: Mapping[sympy.Symbol, Dimension]) -> Node:
    """Replace sizes at once in all nodes below `root`: in shapes, coefficients, parameters, and in
    the equations that operations solve."""
    new: dict[Node, Node] = {}

    def renewed(part: Any) -> Any:
        match part:
            case Node():
                return new[part] if part in new else resize(part, sizes)
            case tuple():
                return tuple(map(renewed, part))
            case Operation(maker=(make, arguments)):
                return make(*renewed(arguments))
            case sympy.Expr() if not part.free_symbols.isdisjoint(sizes):
                return sympy.expand(part.xreplace(sizes))
        return part

    for node in topological([root]):
        new[node] = node if isinstance(node, Constant) else type(node)(*map(renewed, node.fields))
    return new[root]
