"""The differential of an expression: its tangent, linear in the tangents of its leaves.

One rule an operation, as Magnus and Neudecker write it (Matrix Differential Calculus, 1988).
The JVP is the differential with tangents put in; `transpose` makes the VJP of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from derivatrix.compiler.ir.arrays import Array, elementwise
from derivatrix.compiler.ir.nodes import (
    Apply,
    Einsum,
    Leaf,
    Map,
    Node,
    Sum,
    einsum,
    is_zero,
    topological,
    zeros,
)
from derivatrix.compiler.ir.operation import Point
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.simplify import slopes
from derivatrix.runtime.errors import UnsupportedError


def differential(roots: Sequence[Node], tangents: Mapping[Node, Node]) -> list[Node]:
    """The tangents of `roots` where each leaf in `tangents` moves along its tangent.

    Raises UnsupportedError for an operation without a rule.
    """
    known: dict[Node, Node] = dict(tangents)
    for node in topological(roots):
        if node not in known:
            known[node] = rule(node, known)
    return [known[root] for root in roots]


def rule(node: Node, known: Mapping[Node, Node]) -> Node:
    """The tangent of a node, from those of its children."""
    if all(is_zero(known[child]) for child in node.children):
        return zeros(node.shape)
    match node:
        case Einsum():
            return _einsum(node, known)
        case Sum():
            moving = tuple(known[term] for term in node.terms if not is_zero(known[term]))
            return Sum(moving, node.shape)
        case Map():
            return _map(node, known)
        case Apply():
            return _apply(node, known)
    raise UnsupportedError(f"no differential for {type(node).__name__}")


def _einsum(node: Einsum, known: Mapping[Node, Node]) -> Node:
    """The product rule: each factor in turn."""
    tangents = [known[factor] for factor, _ in node.factors]
    moving = [i for i, tangent in enumerate(tangents) if not is_zero(tangent)]
    return Sum(tuple(node.with_factor(i, tangents[i]) for i in moving), node.shape)


def _map(node: Map, known: Mapping[Node, Node]) -> Node:
    """The chain rule, entry by entry."""
    labels = range(node.ndim)
    terms: list[Node] = []
    for position, argument in enumerate(node.arguments):
        tangent = known[argument]
        if is_zero(tangent):
            continue
        slope = slopes.slope(node, position)
        if slope == 0:
            continue
        factor = elementwise(slope, *map(Array, node.arguments)).node
        terms.append(einsum([(factor, labels), (tangent, labels)], labels))
    return Sum(tuple(terms), node.shape)


def _apply(node: Apply, known: Mapping[Node, Node]) -> Node:
    """The operation's own rule, written for its core axes; stacked axes are put in afterwards."""
    operation = node.operation
    point, actual = core_point(node, {"tangent": [known[a] for a, _ in node.arguments]})
    tangents = operation.differential(point)
    return broadcast_over_stack(tangents[node.output].node, actual, node)


def core_point(node: Apply, companions: Mapping[str, list[Node]]) -> tuple[Point, dict[Node, Node]]:
    """The operation's arguments, tangents and results on core axes, and what each stands for."""
    operation = node.operation
    actual: dict[Node, Node] = {}

    def core(name: str, value: Node, labels: tuple[int, ...]) -> Array:
        if not node.stack or is_zero(value):
            return Array(value if not node.stack else zeros(value.shape[len(labels) :]))
        leaf = Leaf(name, value.shape[len(labels) :], role="placeholder")
        actual[leaf] = _with_stack(value, labels, node) if labels else value
        return Array(leaf)

    arguments = tuple(
        core(f"argument {i}", value, labels) for i, (value, labels) in enumerate(node.arguments)
    )
    tangents = tuple(
        core(f"tangent {i}", value, node.arguments[i][1])
        for i, value in enumerate(companions.get("tangent", []))
    )
    every = tuple(range(len(node.stack)))
    shapes = operation.shapes([argument.node.shape for argument in arguments], node.parameters)
    results = tuple(core(f"result {i}", node.sibling(i), every) for i in range(len(shapes)))
    return Point(arguments, tangents, results, node.parameters), actual


def _with_stack(value: Node, labels: tuple[int, ...], node: Apply) -> Node:
    """`value`, whose leading axes are the stacked axes `labels`, with all of them, in order."""
    stack = tuple(range(len(node.stack)))
    if labels == stack:
        return value
    core = [("core", axis) for axis in range(value.ndim - len(labels))]
    sizes = dict(enumerate(node.stack))
    return einsum([(value, (*labels, *core))], [*stack, *core], sizes=sizes)


def broadcast_over_stack(expression: Node, actual: Mapping[Node, Node], node: Apply) -> Node:
    """A rule's result on core axes, for all values of the stacked axes of `node`."""
    if not node.stack:
        return expression
    result = substitute([expression], actual, node.stack)[0]
    return _with_stack(result, (), node) if result.ndim == expression.ndim else result
