"""Arguments of public functions as nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from derivatrix.compiler.ir.arrays import asarray
from derivatrix.compiler.ir.dimensions import shape_text
from derivatrix.compiler.ir.nodes import Leaf, Node
from derivatrix.runtime.errors import DeclarationError, DerivatrixError


def require_one_meaning(function: str, symbols: Iterable[Leaf]) -> None:
    """Raise DeclarationError for two different symbols of one name. A symbol of SymPy's means the
    input of its name and shape."""
    first_by_name: dict[str, Leaf] = {}
    for leaf in symbols:
        first = first_by_name.setdefault(leaf.name, leaf)
        is_input = (first.role == "symbol") != (leaf.role == "symbol") and first.shape == leaf.shape
        if leaf is not first and not is_input:
            raise DeclarationError(
                f"{function}: two different symbols are called {leaf.name}: {declared_text(first)} "
                f"and {declared_text(leaf)}; rename one"
            )


def declared_text(leaf: Leaf) -> str:
    """Write a leaf as "S (n, n) spd"."""
    structure = "" if leaf.structure == "general" else f" {leaf.structure}"
    return f"{leaf.name} {shape_text(leaf.shape)}{structure}"


def argument_node(argument: str, value: Any) -> Node:
    """Return the node of an argument, which is named as "grad: expr" is. Raises the errors of
    `asarray`, with that name."""
    try:
        return asarray(value).node
    except DerivatrixError as error:
        raise type(error)(f"{argument}: {error}") from error
