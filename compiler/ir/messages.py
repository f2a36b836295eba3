"""Operands in error messages: by name, or by formula where it is short."""

from __future__ import annotations

from collections.abc import Sequence

from derivatrix.compiler.ir.broadcasting import broadcast_clash, broadcast_shapes
from derivatrix.compiler.ir.dimensions import Shape, shape_text
from derivatrix.compiler.ir.hooks import hooks
from derivatrix.compiler.ir.nodes import Leaf, Node, topological
from derivatrix.runtime.errors import ShapeError

MAX_FORMULA_LENGTH = 24
"""Longest formula, in characters and in nodes, that error messages show."""


def operand_text(node: Node, otherwise: str = "the array") -> str:
    """Return an input's name, a short formula, or `otherwise`."""
    if isinstance(node, Leaf):
        return node.name
    if len(topological([node])) > MAX_FORMULA_LENGTH:
        return otherwise
    text = hooks.formula(node)
    if len(text) > MAX_FORMULA_LENGTH:
        return otherwise
    return f"({text})" if " " in text and not text.startswith("[") else text


def disagreement(form: str, operands: Sequence[Node], problem: str) -> ShapeError:
    """Return the error for shapes that do not match: "A @ B: A has shape (n, m), B has shape (k,
    p); expected m = k". `form` is the operation with a {} for each operand."""
    ordinals = ("first", "second", "third", "fourth")
    names = [
        operand_text(node, f"the {ordinals[min(position, 3)]} operand")
        for position, node in enumerate(operands)
    ]
    shapes = dict.fromkeys(
        f"{name} has shape {shape_text(node.shape)}"
        for name, node in zip(names, operands, strict=True)
    )
    return ShapeError(f"{form.format(*names)}: {', '.join(shapes)}; {problem}")


def require_square(name: str, matrix: Node) -> None:
    """Raise ShapeError for the operation `name` unless the last two axes are equal."""
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise disagreement(f"{name}({{}})", [matrix], "expected a square matrix")


def broadcast(form: str, *operands: Node) -> Shape:
    """Return the common shape of the operands. Raises ShapeError that names them."""
    shapes = [node.shape for node in operands]
    clash = broadcast_clash(shapes)
    if clash:
        raise disagreement(form, operands, f"these do not broadcast: {clash}")
    return broadcast_shapes(*shapes)
