"""Functions declared by texts alone, for the command line and notebooks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from derivatrix.compiler.frontends.function import Function, function
from derivatrix.compiler.frontends.notation import assignments, parse
from derivatrix.compiler.frontends.notation.functions import is_name
from derivatrix.compiler.frontends.notation.loops import free_names
from derivatrix.compiler.frontends.notation.syntax import parse_tree
from derivatrix.compiler.frontends.notation.tokens import Source
from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import NotationError

NAME = "expression"
"""The default name of such a function."""


def text_function(text: str, dims: str, wrt: Sequence[str] = (), name: str = NAME) -> Function:
    """Declare the function of a text. dims: its inputs, as in "A: p m, X: m n"; wrt: the inputs to
    differentiate by, all if empty. Raises NotationError, and DeclarationError for invalid names."""
    inputs = split_dims(dims)
    declared = function(name, list(inputs), parse(text, **inputs), wrt=wrt or None)
    declared.source = f"the text of {name}"
    return declared


def input_names(text: str) -> list[str]:
    """List the names of the inputs of a text, in order; empty for a text with an error."""
    outputs: list[str] = []
    names: list[str] = []
    try:
        for output, expression in assignments(text):
            source = Source(expression)
            free = free_names(source, parse_tree(source))
            names += [name for name in free if name not in outputs]
            outputs.append(output)
    except NotationError:
        return []
    return [name for name in dict.fromkeys(names) if not is_name(name)]


def split_dims(dims: str) -> dict[str, str]:
    """Split "A: p m, s:" to {"A": "p m", "s": ""}. Raises NotationError."""
    inputs: dict[str, str] = {}
    for entry in re.split(r"[,;](?=[^,;:]*:)", dims):
        name, colon, sizes = (part.strip() for part in entry.partition(":"))
        if not (colon and name.isidentifier()):
            raise NotationError(
                f'inputs are written "A: p m, s:", with nothing after the colon for a scalar; '
                f"{shown(entry.strip())} is no input"
            )
        if name in inputs:
            raise NotationError(f"the input {shown(name)} is declared twice")
        inputs[name] = sizes.rstrip(",;")
    return inputs
