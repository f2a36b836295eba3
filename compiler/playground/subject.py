"""What the page sends: a text, its inputs, and by which of them it is differentiated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from derivatrix.compiler.frontends.function import Function, function
from derivatrix.compiler.frontends.notation import parse
from derivatrix.compiler.frontends.notation.declaration import input_names
from derivatrix.compiler.playground.fields import Fields
from derivatrix.runtime.errors import DeclarationError

NAME = "f"
"""What the function is called."""


@dataclass(frozen=True)
class Subject:
    """`inputs`: by name the sizes and the structure, as `parse` takes them; `wrt`: names."""

    text: str
    inputs: Mapping[str, str]
    wrt: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """The inputs that the text mentions, in their order, without sizes of others and numbers;
        none where it cannot be read."""
        sizes = {word for text in self.inputs.values() for word in re.findall(r"\w+", text)}
        return [name for name in input_names(self.text) if name not in sizes | {"pi"}]

    def function(self) -> Function:
        """The function. Raises DeclarationError, NotationError and ShapeError."""
        if not self.text.strip():
            raise DeclarationError("type an expression, such as x'*A*x")
        array = parse(self.text, **self.inputs)
        made = function(NAME, list(self.inputs), array, wrt=list(self.wrt) or None)
        made.source = "the playground"
        return made

    @property
    def declaration(self) -> str:
        """The function in Python."""
        dims = "".join(f", {name}={sizes!r}" for name, sizes in self.inputs.items())
        rows = [repr(NAME), repr(list(self.inputs)), f"dx.parse({self.text!r}{dims})"]
        rows += [f"wrt={list(self.wrt)!r}"] if self.wrt else []
        lines = "".join(f"    {row},\n" for row in rows)
        return f"import derivatrix as dx\n\n{NAME} = dx.function(\n{lines})\n"


def subject(fields: Fields) -> Subject:
    """The subject of a request."""
    return Subject(fields["text"], fields["inputs"], tuple(fields["wrt"]))
