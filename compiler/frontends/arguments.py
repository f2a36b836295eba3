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
        earlier = first_by_name.setdefault(leaf.name, leaf)
        is_one_from_sympy = (earlier.role == "symbol") != (leaf.role == "symbol")
        if leaf is not earlier and not (is_one_from_sympy and earlier.shape == leaf.shape):
            raise DeclarationError(
                f"{function}: two different symbols are called {leaf.name}: "
                f"{declared_text(earlier)} and {declared_text(leaf)}; rename one"
            )


def declared_text(leaf: Leaf) -> str:
    """Write a leaf as "S (n, n) spd"."""
    structure = "" if leaf.structure == "general" else f" {leaf.structure}"
    return f"{leaf.name} {shape_text(leaf.shape)}{structure}"


def argument_node(argument: str, value: Any) -> Node:
    """Convert an argument to a node. argument: its name in errors, as in "grad: expr". Raises the
    errors of `asarray`, with that name."""
    try:
        return asarray(value).node
    except DerivatrixError as error:
        raise type(error)(f"{argument}: {error}") from error
