"""Sharing of functions that are nodes: beside T = tanh(A), 1 - tanh(A)² is computed as 1 - T²."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.graph import rebuilt
from derivatrix.compiler.ir.scalar_values import cost
from derivatrix.compiler.plan.uses import MIN_STORED_OPS

Call = tuple[sympy.Expr, tuple[ir.Node, ...]]
"""An expression of slots, and the arguments in them."""


def share_functions(roots: Sequence[ir.Node]) -> list[ir.Node]:
    """Replace costly parts of elementwise expressions that are nodes themselves by these nodes."""
    return _Sharing(roots).nodes(roots)


class _Sharing:
    def __init__(self, roots: Sequence[ir.Node]) -> None:
        self._order = ir.topological(roots)
        maps = [node for node in self._order if isinstance(node, ir.Map)]
        self._maps_by_call = {ir.used_slots(node.expression, node.arguments): node for node in maps}
        self._new: dict[ir.Node, ir.Node] = {}

    def nodes(self, roots: Sequence[ir.Node]) -> list[ir.Node]:
        for node in self._order:
            self._rebuilt(node)
        return [self._new[root] for root in roots]

    def _rebuilt(self, node: ir.Node) -> ir.Node:
        """Rebuild a node on its rebuilt children, and share parts of its expression."""
        if node not in self._new:
            changed = rebuilt(node, self._new)
            if isinstance(node, ir.Map) and isinstance(changed, ir.Map):
                changed = self._shared(node, changed)
            self._new[node] = changed
        return self._new[node]

    def _shared(self, node: ir.Map, changed: ir.Map) -> ir.Map:
        """Share parts of the expression of `node`; changed: the node with its new arguments."""
        arguments = list(changed.arguments)

        def visit(expression: sympy.Expr) -> sympy.Expr:
            if not expression.args:
                return expression
            if cost(expression) >= MIN_STORED_OPS:
                shared_map = self._maps_by_call.get(ir.used_slots(expression, node.arguments), node)
                if shared_map is not node:
                    arguments.append(self._rebuilt(shared_map))
                    return ir.slot(len(arguments) - 1)
            return expression.func(*map(visit, expression.args))

        expression = visit(changed.expression)
        if len(arguments) == len(changed.arguments):
            return changed
        return ir.Map(*ir.used_slots(expression, tuple(arguments)))
