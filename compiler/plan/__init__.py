"""Planning: from the graph of a kernel's outputs to the steps that compute them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import sympy

from derivatrix.compiler import ir
from derivatrix.compiler.dimensions import readings
from derivatrix.compiler.facts import facts
from derivatrix.compiler.plan.associate import associate
from derivatrix.compiler.plan.fuse import fuse
from derivatrix.compiler.plan.linear import helper_names
from derivatrix.compiler.plan.names import Names
from derivatrix.compiler.plan.nest import View
from derivatrix.compiler.plan.schedule import Scheduler
from derivatrix.compiler.plan.steps import Allocate, Argument, Buffer, Plan, Size, Step, renamed
from derivatrix.compiler.plan.unroll import unroll
from derivatrix.runtime.errors import DeclarationError

__all__ = ["Plan", "Size", "plan"]


def plan(
    name: str,
    arguments: Sequence[ir.Leaf],
    outputs: Sequence[tuple[str, ir.Node]],
    taken: Iterable[str] = (),
) -> Plan:
    """The kernel `name` that computes `outputs` from `arguments`.

    No local name is one of `taken`. Raises DeclarationError where a size does not follow from
    the arguments' shapes, UnsupportedError for what no kernel computes.
    """
    nodes, structure = associate([node for _, node in outputs])
    names = Names([*taken, *helper_names(nodes)])
    parameters = tuple(
        Argument(leaf.name, names.exact(leaf.name), leaf.shape) for leaf in arguments
    )
    buffers = [
        (output, Buffer(names.exact(output), node.shape, "output")) for output, node in outputs
    ]
    sizes = _sizes(parameters, [node for _, node in outputs], names)
    views: dict[ir.Node, View] = {
        leaf: View(
            Buffer(parameter.local, leaf.shape, "argument"), tuple(range(leaf.ndim)), not leaf.ndim
        )
        for leaf, parameter in zip(arguments, parameters, strict=True)
    }
    places = [
        (node, View(buffer, tuple(range(node.ndim))))
        for node, (_, buffer) in zip(nodes, buffers, strict=True)
    ]
    known = partial(_facts, structure)
    constants: dict[str, np.ndarray] = {}
    nest = unroll(places, views, names, known)
    if nest is not None:
        computed: list[Step] = [nest]
    else:
        scheduler = Scheduler(names, views, nodes, known, plan)
        for node, view in places:
            scheduler.output(node, view)
        computed, constants = fuse(scheduler.steps), scheduler.constants
    renames = {_symbol(size.name): _symbol(size.local) for size in sizes if size.name != size.local}
    steps = tuple(_allocated(computed))
    return Plan(
        name,
        parameters,
        tuple(buffers),
        sizes,
        tuple(sorted(constants.items())),
        renamed(steps, renames) if renames else steps,
    )


def _facts(structure: Mapping[ir.Node, frozenset[str]], node: ir.Node) -> frozenset[str]:
    """What is known of a node: from before products were associated, and as it is now."""
    return structure.get(node, frozenset()) | facts(node)


def _symbol(name: str) -> sympy.Symbol:
    return sympy.Symbol(name, integer=True, positive=True)


def _sizes(
    arguments: Sequence[Argument], nodes: Sequence[ir.Node], names: Names
) -> tuple[Size, ...]:
    """Every named size, read off the arguments' axes."""
    found = readings([argument.shape for argument in arguments])
    for node in ir.topological(nodes):
        sizes = node.sizes if isinstance(node, ir.Einsum) else node.shape
        for symbol in sorted(sympy.Tuple(*sizes).free_symbols, key=str):
            if symbol not in found:
                raise DeclarationError(
                    f"the size {symbol} follows from no input's shape; "
                    f"give some input an axis of length {symbol}"
                )
    return tuple(
        Size(
            symbol.name,
            names.exact(symbol.name),
            arguments[reading.position],
            reading.axis,
            reading.value,
            reading.exact,
        )
        for symbol, reading in found.items()
    )


def _allocated(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps, with work buffers allocated where they are first used."""
    known: set[Buffer] = set()
    for step in steps:
        for buffer in dict.fromkeys(_buffers(step)):
            if buffer.role == "work" and buffer not in known:
                known.add(buffer)
                yield Allocate(buffer)
        yield step


def _buffers(part: Any) -> Iterator[Buffer]:
    """The buffers that a part of a plan mentions."""
    if isinstance(part, Buffer):
        yield part
    elif isinstance(part, Plan):
        return
    elif isinstance(part, tuple):
        for item in part:
            yield from _buffers(item)
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            yield from _buffers(getattr(part, field.name))
