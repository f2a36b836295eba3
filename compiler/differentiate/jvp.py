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
    """Compute the tangents of `roots` where each leaf in `tangents` moves along its tangent.

    Raises UnsupportedError for an operation without a rule.
    """
    tangent_of: dict[Node, Node] = dict(tangents)
    for node in topological(roots):
        if node not in tangent_of:
            tangent_of[node] = rule(node, tangent_of)
    return [tangent_of[root] for root in roots]


def rule(node: Node, tangent_of: Mapping[Node, Node]) -> Node:
    """Compute the tangent of `node` from the tangents of its children."""
    if all(is_zero(tangent_of[child]) for child in node.children):
        return zeros(node.shape)
    match node:
        case Einsum():
            return _differentiate_product(node, tangent_of)
        case Sum():
            terms = tuple(tangent_of[term] for term in node.terms if not is_zero(tangent_of[term]))
            return Sum(terms, node.shape)
        case Map():
            return _differentiate_map(node, tangent_of)
        case Apply():
            return _differentiate_operation(node, tangent_of)
    raise UnsupportedError(f"no differential for {type(node).__name__}")


def _differentiate_product(node: Einsum, tangent_of: Mapping[Node, Node]) -> Node:
    """Apply the product rule."""
    tangents = [tangent_of[factor] for factor, _ in node.factors]
    varying = [i for i, tangent in enumerate(tangents) if not is_zero(tangent)]
    return Sum(tuple(node.with_factor(i, tangents[i]) for i in varying), node.shape)


def _differentiate_map(node: Map, tangent_of: Mapping[Node, Node]) -> Node:
    """Apply the chain rule entry by entry."""
    labels = range(node.ndim)
    terms: list[Node] = []
    for position, argument in enumerate(node.arguments):
        tangent = tangent_of[argument]
        if is_zero(tangent):
            continue
        slope = slopes.slope(node, position)
        if slope == 0:
            continue
        factor = elementwise(slope, *map(Array, node.arguments)).node
        terms.append(einsum([(factor, labels), (tangent, labels)], labels))
    return Sum(tuple(terms), node.shape)


def _differentiate_operation(node: Apply, tangent_of: Mapping[Node, Node]) -> Node:
    """Apply the rule of the operation, which is written for core axes, to all stacked axes."""
    operation = node.operation
    point, values = core_point(node, [tangent_of[argument] for argument, _ in node.arguments])
    tangents = operation.differential(point)
    return broadcast_over_stack(tangents[node.output].node, values, node)


def core_point(node: Apply, tangents: Sequence[Node] = ()) -> tuple[Point, dict[Node, Node]]:
    """Build the point at which the rules of an operation are evaluated, without stacked axes.

    Where `node` has stacked axes, the point holds placeholders of core shape; the second result
    maps each placeholder to the array, with stacked axes, that it stands for.
    """
    operation = node.operation
    values: dict[Node, Node] = {}

    def core(name: str, value: Node, labels: tuple[int, ...]) -> Array:
        if not node.stack or is_zero(value):
            # Zeros stay zeros: rules leave out the terms of tangents that are zero.
            return Array(value if not node.stack else zeros(value.shape[len(labels) :]))
        leaf = Leaf(name, value.shape[len(labels) :], role="placeholder")
        values[leaf] = _with_stack(value, labels, node) if labels else value
        return Array(leaf)

    arguments = tuple(
        core(f"argument {i}", value, labels) for i, (value, labels) in enumerate(node.arguments)
    )
    core_tangents = tuple(
        core(f"tangent {i}", value, node.arguments[i][1]) for i, value in enumerate(tangents)
    )
    all_labels = tuple(range(len(node.stack)))
    shapes = operation.shapes([argument.node.shape for argument in arguments], node.parameters)
    results = tuple(core(f"result {i}", node.sibling(i), all_labels) for i in range(len(shapes)))
    return Point(arguments, core_tangents, results, node.parameters), values


def _with_stack(value: Node, labels: tuple[int, ...], node: Apply) -> Node:
    """Broadcast `value`, whose leading axes are the stacked axes `labels`, to all stacked axes."""
    stack = tuple(range(len(node.stack)))
    if labels == stack:
        return value
    core = [("core", axis) for axis in range(value.ndim - len(labels))]
    sizes = dict(enumerate(node.stack))
    return einsum([(value, (*labels, *core))], [*stack, *core], sizes=sizes)


def broadcast_over_stack(expression: Node, values: Mapping[Node, Node], node: Apply) -> Node:
    """Evaluate the result of a rule, an expression of placeholders on core axes, at `values` for
    all indices of the stacked axes of `node`."""
    if not node.stack:
        return expression
    result = substitute([expression], values, node.stack)[0]
    return _with_stack(result, (), node) if result.ndim == expression.ndim else result
