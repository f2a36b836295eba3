"""Text in the notation of matrixcalculus.org and MATLAB, read as symbolic arrays.

text -> statements -> tokens -> tree (`syntax`) -> shapes, sizes and steps (`meaning`) -> array.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import sympy

from derivatrix.compiler.frontends.notation.inputs import declare
from derivatrix.compiler.frontends.notation.meaning import KINDS, Meaning
from derivatrix.compiler.frontends.notation.syntax import Tree, parse_tree
from derivatrix.compiler.frontends.notation.tokens import Source
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import NotationError

MAX_READINGS = 200
"""Most combinations of shapes of `ones` in a text that are tried."""


def parse(text: str, /, **dims: str) -> Any:
    """Read a text as a symbolic array, as in parse("x'*A*x", x="n", A="n n").

    A text of assignments, as in "r = A*x - b; loss = r'*r", is read as a mapping of its names to
    arrays, the outputs of a function; each may be used in those after it.

    dims: for each input its sizes and optionally a structure: "n n spd", "n+p", "3 3 invertible",
    "positive"; "" for a scalar. The inputs are the array's leaves, and `function` takes them by
    name: function("f", ["x", "A"], parse(...)). A row is an array of one axis.

    Raises NotationError, which shows the place in the text.
    """
    if not isinstance(text, str):
        raise NotationError(f"parse reads a text, not {shown(text)}")
    inputs, sizes = declare(dims)
    numbers = {"pi": sympy.pi, **sizes}
    outputs: dict[str, Array] = {}
    names_used: set[str] = set()
    for name, expression in assignments(text):
        if name in inputs or name in outputs:
            raise NotationError(f"{name!r} is assigned to, and names an input or output already")
        source = Source(expression)
        tree = parse_tree(source)
        outputs[name], read_names = _interpret(source, tree, {**inputs, **outputs}, numbers)
        names_used |= read_names
    for name in inputs:
        if name not in names_used:
            raise NotationError(f"the input {name!r} is declared and never used in {shown(text)}")
    return outputs.get("", outputs)


def assignments(text: str) -> list[tuple[str, str]]:
    """Split a text into names and expressions; one that is no assignment has the name "". Raises
    NotationError for an assignment among expressions without names."""
    parts = _split_statements(text)
    matches = [re.fullmatch(r"\s*([^\W\d]\w*)\s*=(.*)", part, re.DOTALL) for part in parts]
    if not any(matches):
        return [("", text)]
    for part, match in zip(parts, matches, strict=True):
        if match is None:
            raise NotationError(
                f"{shown(part.strip())} is no assignment; outputs are written "
                '"name = expression; name = expression"'
            )
    return [(match[1], match[2]) for match in matches if match]


def _split_statements(text: str) -> list[str]:
    """Split a text at semicolons outside of brackets; one at its end closes the last statement."""
    parts, depth = [""], 0
    for character in text.rstrip().removesuffix(";"):
        depth += (character in "([") - (character in ")]")
        if character == ";" and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _interpret(
    source: Source, tree: Tree, inputs: Mapping[str, Array], numbers: Mapping[str, sympy.Expr]
) -> tuple[Array, set[str]]:
    """Build the array, and return the names that are used; each `ones` is a column, a matrix or a
    row, whichever fits first."""
    choice: list[str] = []
    errors: list[tuple[int, NotationError]] = []
    while not errors or (choice and len(errors) < MAX_READINGS):
        meaning = Meaning(source, inputs, numbers, choice)
        try:
            array = meaning.build(meaning.read(tree))
        except NotationError as error:
            errors.append((len(meaning.steps), error))
            choice = next_choice(meaning.choice)
            continue
        return array, set(meaning.used)
    # the reading that came furthest is most likely the intended one
    raise max(errors, key=lambda reading: reading[0])[1]


def next_choice(choice: list[str]) -> list[str]:
    """Return the choice of shapes of `ones` after one that failed, in lexicographic order; nothing
    after the last."""
    while choice and choice[-1] == KINDS[-1]:
        choice.pop()
    return [*choice[:-1], KINDS[KINDS.index(choice[-1]) + 1]] if choice else []


__all__ = ["parse"]
