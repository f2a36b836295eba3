"""Arguments of public functions as nodes."""

from __future__ import annotations

from typing import Any

from derivatrix.compiler.ir.arrays import asarray
from derivatrix.compiler.ir.nodes import Node
from derivatrix.runtime.errors import DerivatrixError


def argument_node(argument: str, value: Any) -> Node:
    """Return the node of an argument, which is named as "grad: expr" is. Raises the errors of
    `asarray`, with that name."""
    try:
        return asarray(value).node
    except DerivatrixError as error:
        raise type(error)(f"{argument}: {error}") from error
