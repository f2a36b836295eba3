"""How error messages speak of operands: by name, or by their formula where it is short."""

from __future__ import annotations

from collections.abc import Sequence

from derivatrix.compiler.ir.broadcasting import broadcast_clash, broadcast_shapes
from derivatrix.compiler.ir.dimensions import Shape, shape_text
from derivatrix.compiler.ir.hooks import hooks
from derivatrix.compiler.ir.nodes import Leaf, Node, topological
from derivatrix.runtime.errors import ShapeError

LONGEST = 24
"""Longer formulas, and those of more nodes, would hide what the message says."""


def operand_text(node: Node, otherwise: str = "the array") -> str:
    """An input's name, a short formula, or `otherwise`."""
    if isinstance(node, Leaf):
        return node.name
    if len(topological([node])) > LONGEST:
        return otherwise
    text = hooks.formula(node)
    if len(text) > LONGEST:
        return otherwise
    return f"({text})" if " " in text and not text.startswith("[") else text


def disagreement(form: str, operands: Sequence[Node], problem: str) -> ShapeError:
    """The error for shapes that do not go together: "A @ B: A has shape (n, m), B has shape
    (k, p); expected m = k". form: the operation, with a {} for each operand."""
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
    """Raise ShapeError, which calls the operation `name`, unless the last two axes are equal."""
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise disagreement(f"{name}({{}})", [matrix], "expected a square matrix")


def broadcast(form: str, *operands: Node) -> Shape:
    """The common shape of the operands; raises ShapeError that names them."""
    shapes = [node.shape for node in operands]
    clash = broadcast_clash(shapes)
    if clash:
        raise disagreement(form, operands, f"these do not broadcast: {clash}")
    return broadcast_shapes(*shapes)
