"""Planning: from the graph of a kernel's outputs to the steps that compute them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sympy

from derivatrix.compiler import ir
from derivatrix.compiler.dimensions import shape_text
from derivatrix.compiler.plan.associate import associate
from derivatrix.compiler.plan.names import Names
from derivatrix.compiler.plan.nest import View
from derivatrix.compiler.plan.schedule import Scheduler
from derivatrix.compiler.plan.steps import AXIS_LENGTH, Argument, Buffer, Call, Gemm, Nest, Plan
from derivatrix.runtime.errors import DeclarationError

__all__ = ["Plan", "plan"]


def plan(
    name: str,
    arguments: Sequence[ir.Leaf],
    outputs: Sequence[tuple[str, ir.Node]],
    taken: Iterable[str] = (),
) -> Plan:
    """The kernel `name` that computes `outputs` from `arguments`.

    Every size must follow from the arguments' shapes. No local name is an argument's, an
    output's or one of `taken`. Raises UnsupportedError for what no kernel computes.
    """
    names = Names([*(leaf.name for leaf in arguments), *(out for out, _ in outputs), *taken])
    symbols = _symbols(arguments, [node for _, node in outputs])
    renames = {
        symbol: sympy.Symbol(names.exact(symbol.name), integer=True, positive=True)
        for symbol in symbols
    }
    ...
