"""Text in the notation of matrixcalculus.org and MATLAB, read as symbolic arrays.

text -> tokens -> tree (`syntax`) -> shapes, sizes and steps (`meaning`) -> array.
"""

from __future__ import annotations

from collections.abc import Mapping

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


def parse(text: str, /, **dims: str) -> Array:
    """Read a text as a symbolic array, as in parse("x'*A*x", x="n", A="n n").

    dims: for each input its sizes and optionally a structure: "n n spd", "n+p", "3 3 invertible",
    "positive"; "" for a scalar. The inputs are the array's leaves, and `function` takes them by
    name: function("f", ["x", "A"], parse(...)). A row is an array of one axis.

    Raises NotationError, which shows the place in the text.
    """
    if not isinstance(text, str):
        raise NotationError(f"parse reads a text, not {shown(text)}")
    inputs, sizes = declare(dims)
    source = Source(text)
    return _interpret(source, parse_tree(source), inputs, {"pi": sympy.pi, **sizes})


def _interpret(
    source: Source, tree: Tree, inputs: Mapping[str, Array], numbers: Mapping[str, sympy.Expr]
) -> Array:
    """Build the array; each `ones` is a column, a matrix or a row, whichever fits first."""
    choice: list[str] = []
    errors: list[tuple[int, NotationError]] = []
    while not errors or (choice and len(errors) < MAX_READINGS):
        meaning = Meaning(source, inputs, numbers, choice)
        try:
            array = meaning.build(meaning.read(tree))
        except NotationError as error:
            errors.append((len(meaning.steps), error))
            choice = _next(meaning.choice)
            continue
        for name in inputs:
            if name not in meaning.used:
                raise NotationError(
                    f"the input {name!r} is declared and never used in {shown(source.text)}"
                )
        return array
    # the reading that came furthest is most likely the intended one
    raise max(errors, key=lambda reading: reading[0])[1]


def _next(choice: list[str]) -> list[str]:
    """The choice after one that failed, in lexicographic order; empty after the last."""
    while choice and choice[-1] == KINDS[-1]:
        choice.pop()
    return [*choice[:-1], KINDS[KINDS.index(choice[-1]) + 1]] if choice else []


__all__ = ["parse"]
