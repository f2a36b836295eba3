"""The function that a request declares: a text, its inputs, and those to differentiate by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from derivatrix.compiler.frontends.function import Function, function
from derivatrix.compiler.frontends.notation import parse
from derivatrix.compiler.frontends.notation.declaration import input_names
from derivatrix.compiler.frontends.notation.guesses import guess_inputs
from derivatrix.compiler.playground.fields import Fields
from derivatrix.runtime.errors import DeclarationError

FUNCTION_NAME = "f"


@dataclass(frozen=True)
class Subject:
    """`inputs`: by name, the sizes and the structure, as `parse` takes them; `wrt`: names."""

    text: str
    inputs: Mapping[str, str]
    wrt: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """The inputs in the text, in their order, without sizes and numbers; none if the text
        cannot be parsed."""
        sizes = {word for text in self.inputs.values() for word in re.findall(r"\w+", text)}
        return [name for name in input_names(self.text) if name not in sizes | {"pi"}]

    def function(self) -> Function:
        """Declare the function. Raises DeclarationError, NotationError and ShapeError."""
        if not self.text.strip():
            raise DeclarationError("type an expression, such as x'*A*x")
        array = parse(self.text, **self.inputs)
        declared = function(FUNCTION_NAME, list(self.inputs), array, wrt=list(self.wrt) or None)
        declared.source = "the playground"
        return declared

    @property
    def declaration(self) -> str:
        """The declaration of the function in Python."""
        dims = "".join(f", {name}={sizes!r}" for name, sizes in self.inputs.items())
        rows = [repr(FUNCTION_NAME), repr(list(self.inputs)), f"dx.parse({self.text!r}{dims})"]
        rows += [f"wrt={list(self.wrt)!r}"] if self.wrt else []
        lines = "".join(f"    {row},\n" for row in rows)
        return f"import derivatrix as dx\n\n{FUNCTION_NAME} = dx.function(\n{lines})\n"


def subject(fields: Fields) -> Subject:
    """Read the subject of a request. Sizes that fit the text are guessed for inputs that the
    request lacks, and for those whose sizes were guessed before."""
    text, guessed = fields["text"], fields.get("guessed", ())
    inputs = {name: sizes for name, sizes in fields["inputs"].items() if name not in guessed}
    sizes = inputs | guess_inputs(text, inputs)
    order = [name for name in input_names(text) if name in sizes]
    in_order = {name: sizes[name] for name in (*order, *inputs)}
    return Subject(text, in_order, tuple(fields["wrt"]))
