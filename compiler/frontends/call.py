"""Declared functions as parts of other expressions."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any

import numpy as np
import sympy

from derivatrix.compiler.differentiate.projection import project
from derivatrix.compiler.frontends.arguments import argument_node
from derivatrix.compiler.frontends.equation import state_with
from derivatrix.compiler.ir.arrays import Array, apply, broadcast_to
from derivatrix.compiler.ir.broadcasting import broadcast_clash, broadcast_shapes
from derivatrix.compiler.ir.declaration import Declaration
from derivatrix.compiler.ir.dimensions import LENGTH, Dimension, Shape, readings, shape_text
from derivatrix.compiler.ir.graph import transformed
from derivatrix.compiler.ir.messages import operand_text
from derivatrix.compiler.ir.nodes import Constant, Leaf, Node, literal
from derivatrix.compiler.ir.resize import resize
from derivatrix.compiler.ir.structure import DECLARED_FACTS, facts
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.operations.assumption import assumption
from derivatrix.compiler.simplify import simplify
from derivatrix.runtime.domains import contains
from derivatrix.runtime.errors import DeclarationError, ShapeError


def call(function: Declaration, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Replace the inputs of a function by arguments, and its sizes by those of the arguments.

    Returns its expression, or a named tuple of several; see `Function.__call__`."""
    arguments = _bind_arguments(function, positional, named)
    batch_axes = {
        leaf.name: node.shape[: node.ndim - leaf.ndim]
        for leaf, node in arguments.items()
        if leaf.name in function.batch and node.ndim > leaf.ndim
    }
    if broadcast_clash([*batch_axes.values()]):
        text = ", ".join(f"{name} has {shape_text(axes)}" for name, axes in batch_axes.items())
        raise ShapeError(f"{function.name}: the batch axes do not broadcast: {text}")
    stack = broadcast_shapes(*batch_axes.values())
    sizes = _bind_sizes(function, [*arguments.values()], batch_axes)
    replacements = dict[Node, Node]()
    for leaf, node in arguments.items():
        resized_leaf = resize(leaf, sizes)
        if leaf.name in batch_axes:
            node = broadcast_to(Array(node), stack + resized_leaf.shape).node
        replacements[resized_leaf] = _with_structure(function.name, leaf, node)
    resized = [resize(node, sizes) for node in function.expressions]
    # roots print the equation that was declared: their formulas need the arguments, too
    expressions = transformed(resized, lambda node: state_with(node, arguments))
    nodes = substitute(expressions, replacements, stack)
    arrays = [
        broadcast_to(Array(node), stack + expression.shape)
        for node, expression in zip(nodes, expressions, strict=True)
    ]
    names = function.output_names
    return namedtuple("Outputs", names)(*arrays) if names else arrays[0]


def _bind_arguments(
    function: Declaration, positional: Sequence[Any], named: Mapping[str, Any]
) -> dict[Leaf, Node]:
    """Match the arguments of a call with the inputs. Raises DeclarationError for missing,
    superfluous and repeated ones, as Python does."""
    parameters = {
        leaf.name: Parameter(leaf.name, Parameter.POSITIONAL_OR_KEYWORD) for leaf in function.inputs
    }
    signature = f"{function.name}({', '.join(parameters)})"
    for name in named:
        if name not in parameters:
            raise DeclarationError(f"{signature}: there is no input {name}")
    try:
        values = Signature([*parameters.values()]).bind(*positional, **named).arguments
    except TypeError as error:
        raise DeclarationError(f"{signature}: {error}") from error
    return {
        leaf: argument_node(f"{function.name}: {leaf.name}", values[leaf.name])
        for leaf in function.inputs
    }


def _bind_sizes(
    function: Declaration, arguments: Sequence[Node], batch_axes: Mapping[str, Shape]
) -> dict[sympy.Symbol, Dimension]:
    """Find the value of each size of the function's inputs in the shapes of the arguments.
    batch_axes: those of each argument that has some, by the input's name. Raises ShapeError for an
    argument that does not fit the others."""
    inputs, sizes = function.inputs, dict[sympy.Symbol, Dimension]()
    shapes = [
        node.shape[len(batch_axes.get(leaf.name, ())) :]
        for leaf, node in zip(inputs, arguments, strict=True)
    ]
    sources = readings([leaf.shape for leaf in inputs])
    for symbol, (position, axis, value, _) in sources.items():
        if axis < len(shapes[position]):
            length = shapes[position][axis]
            sizes[symbol] = sympy.expand(value.xreplace({LENGTH: length, **sizes}))
    for leaf, node, shape in zip(inputs, arguments, shapes, strict=True):
        expected = tuple(sympy.expand(size.xreplace(sizes)) for size in leaf.shape)
        symbols = sorted({s for size in leaf.shape for s in size.free_symbols & {*sizes}}, key=str)
        if expected == shape and not any(sizes[symbol].is_negative for symbol in symbols):
            continue
        bindings = " and ".join(
            f"{symbol} = {sizes[symbol]}, by {inputs[sources[symbol].position].name}"
            for symbol in symbols
            if sizes[symbol] != symbol
        )
        expected_text = shape_text((*batch_axes.get(leaf.name, ()), *leaf.shape))
        raise ShapeError(
            f"{function.name}: the argument for {leaf.name} has shape {shape_text(node.shape)}, "
            f"expected {expected_text}{f' with {bindings}' if bindings else ''}"
        )
    return sizes


def _with_structure(name: str, leaf: Leaf, node: Node) -> Node:
    """Give an argument the structure of the input `leaf` as a fact. The nearest matrix of the
    structure replaces an argument that is not known to have it. Raises DeclarationError for numbers
    without the structure, and for an orthogonal input unless its argument is known to be
    orthogonal: the nearest orthogonal matrix is no linear function of it."""
    structure, text = leaf.structure, operand_text(node, "its argument")
    number = literal(node)
    array = node.array if isinstance(node, Constant) else None
    if number is not None and number.is_number and not node.ndim:
        array = np.asarray(float(number))
    if array is not None and not contains(structure, array):
        raise DeclarationError(f"{name}: {leaf.name} is {structure}, and {text} is not")
    required_facts = DECLARED_FACTS.get(structure, frozenset())
    for form in (node, *simplify([node])):  # facts may show only after simplification
        if required_facts <= facts(form):
            return form
    if array is None and structure == "orthogonal":
        raise DeclarationError(
            f"{name}: {leaf.name} is orthogonal, and {text} is not known to be; where it is, write "
            f'assume({text}, "orthogonal")'
        )
    nearest = node if array is not None else project(node, leaf)
    if required_facts <= facts(nearest):
        return nearest
    return apply(assumption(structure), Array(nearest)).node
