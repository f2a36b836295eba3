"""Helpers of passes over graphs of nodes: the children of a node, the node on other children, and
whole graphs rebuilt from the leaves up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.operation import Loop, Operation, Segments


def references(node: ir.Node) -> list[ir.Node]:
    """List the children of a node, as often as it reads them."""
    match node:
        case ir.Einsum():
            return [factor for factor, _ in node.factors]
        case ir.Sum():
            return list(node.terms)
        case ir.Map():
            return list(node.arguments)
        case ir.Apply():
            return [argument for argument, _ in node.arguments]
    return []


def rebuilt(
    node: ir.Node,
    new: Mapping[ir.Node, ir.Node],
    resized: Callable[[Shape], Shape] = lambda shape: shape,
) -> ir.Node:
    """Replace the children of a node by `new`; `resized` changes its sizes to match."""
    match node:
        case ir.Einsum():
            factors = tuple((new[factor], labels) for factor, labels in node.factors)
            return ir.Einsum(node.coefficient, factors, resized(node.sizes), node.ndim)
        case ir.Sum():
            return ir.Sum(tuple(new[term] for term in node.terms), resized(node.shape))
        case ir.Map():
            return ir.Map(node.expression, tuple(new[argument] for argument in node.arguments))
        case ir.Apply():
            arguments = tuple((new[argument], labels) for argument, labels in node.arguments)
            stack = resized(node.stack)
            return ir.Apply(node.operation, arguments, stack, node.parameters, node.output)
    return node


def transformed(roots: Sequence[ir.Node], change: Callable[[ir.Node], ir.Node]) -> list[ir.Node]:
    """Apply `change` to each node from the leaves up, and return the new roots."""
    new: dict[ir.Node, ir.Node] = {}
    for node in ir.topological(roots):
        new[node] = change(rebuilt(node, new))
    return [new[root] for root in roots]


StepChange = Callable[[Operation, Sequence[ir.Node]], Sequence[ir.Node]]
"""A pass over expressions in the steps of an operation, which it is given."""


def with_derived_steps(node: ir.Apply, change: StepChange) -> ir.Node:
    """Change the expressions in the steps of an operation that is a derivative of a loop, over
    steps or over segments. Others, the function's own among them, stay."""
    operation = _with_derived_steps(node.operation, change)
    return ir.Apply(operation, node.arguments, node.stack, node.parameters, node.output)


@lru_cache(maxsize=1024)
def _with_derived_steps(operation: Operation, change: StepChange) -> Operation:
    loop, segments = operation.loop, operation.segments

    def changed(nodes: Sequence[ir.Node]) -> tuple[ir.Node, ...]:
        return tuple(change(operation, nodes))

    if loop is not None and loop.injections is not None:
        record: Loop | Segments = replace(loop, following=changed(loop.following))
    elif segments is not None and segments.forward is not None:
        record = replace(
            segments,
            following=changed(segments.following),
            outputs=changed(segments.outputs),
            sums=changed(segments.sums),
        )
    else:
        return operation
    assert operation.maker is not None
    make, _ = operation.maker
    return make(*record.fields)


def size_symbols(roots: Iterable[ir.Node]) -> set[sympy.Symbol]:
    """Collect the sizes that occur anywhere below `roots`."""
    expressions: set[sympy.Expr] = set()
    for node in ir.topological(roots):
        expressions.update(node.shape)
        match node:
            case ir.Einsum():
                expressions.update((node.coefficient, *node.sizes))
            case ir.Apply():
                expressions.update(node.stack)
            case ir.Slice():
                expressions.add(node.start)
    return {symbol for expression in expressions for symbol in expression.free_symbols}


def depending(order: Iterable[ir.Node], leaves: Iterable[ir.Node]) -> set[ir.Node]:
    """Return the leaves and the nodes of `order`, a topological order, that depend on them."""
    dependents = set(leaves)
    for node in order:
        if any(child in dependents for child in node.children):
            dependents.add(node)
    return dependents


@lru_cache(maxsize=65536)
def masked(node: ir.Node) -> ir.Node:
    """Write an operation that is a mask as the product of its argument and that mask."""
    if not isinstance(node, ir.Apply) or not node.operation.is_mask:
        return node
    ((argument, labels),) = node.arguments
    if ir.literal(argument) is not None:
        return node
    core = tuple(range(len(node.stack), node.ndim))
    ones = ir.full(1, tuple(node.shape[axis] for axis in core))
    mask = ir.Apply(node.operation, ((ones, ()),), (), node.parameters, node.output)
    sizes = dict(enumerate(node.shape))
    return ir.einsum([(argument, (*labels, *core)), (mask, core)], range(node.ndim), sizes=sizes)
