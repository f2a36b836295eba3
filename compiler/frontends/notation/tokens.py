"""A text cut into tokens, and errors that point at a place in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import NotationError


class Span(NamedTuple):
    """A stretch of the text: from `start` up to, not including, `stop`."""

    start: int
    stop: int


LONGEST = 100_000
"""How many letters a text may have."""
NEAR = 100
"""So many letters before and after the begin of a place are shown."""


@dataclass(frozen=True)
class Source:
    """The text being read. `title` says what it is where it is not the expression itself."""

    text: str
    title: str = ""

    def error(self, message: str, span: Span) -> NotationError:
        """The message, the line of the text it is about (what is near, of a long one), and carets
        under the place."""
        begin = max(self.text.rfind("\n", 0, span.start) + 1, span.start - NEAR)
        line = self.text[begin:].partition("\n")[0][: 2 * NEAR]
        count = max(1, min(span.stop, begin + len(line)) - span.start)
        shown = line.replace("\t", " ")
        carets = " " * (span.start - begin) + "^" * count
        return NotationError(f"{self.title}{message}\n    {shown}\n    {carets}")


class Token(NamedTuple):
    """`kind` is "number", "name", "text" (in quotation marks), "end", or the operator itself."""

    kind: str
    text: str
    span: Span

    @property
    def shown(self) -> str:
        """The token as messages name it."""
        return "the end of the text" if self.kind == "end" else shown(self.text)


_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<number>(?:\d+(?:\.(?![*/^'])\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<name>[^\W\d]\w*)
    | "(?P<text>[^"\n]*)"
    | (?P<operator>\.[*/^]|[-+*/^'()\[\],;:])
    """,
    re.VERBOSE,
)
_INSTEAD = {
    "**": "a power is written ^, entry by entry .^",
    "//": "division is written /, entry by entry ./",
    "@": "the matrix product is written *",
    "\\": "write solve(A, B) for inv(A)*B",
    "=": "an expression has no =",
    "{": "blocks are written [A, B; C, D]",
    "’": "the transpose is written with a straight apostrophe '",
    "−": "minus is written -",
    ".": "elementwise operators are .* ./ .^, the transpose is '",
    '"': "the quotation mark is never closed",
}


def tokenize(source: Source) -> list[Token]:
    """The tokens of a text, an "end" last. Raises NotationError for what no token begins with, and
    for a text that is too long."""
    if len(source.text) > LONGEST:
        message = f"the text has {len(source.text)} letters; at most {LONGEST} are read"
        raise source.error(message, Span(LONGEST, LONGEST + 1))
    tokens = []
    position = 0
    while position < len(source.text):
        for unusual in ("**", "//"):
            if source.text.startswith(unusual, position):
                raise source.error(_INSTEAD[unusual], Span(position, position + 2))
        match = _TOKEN.match(source.text, position)
        if match is None:
            raise _unexpected(source, position)
        if match.lastgroup != "space":
            kind, text = str(match.lastgroup), match[str(match.lastgroup)]
            span = Span(*match.span())
            tokens.append(Token(text if kind == "operator" else kind, text, span))
        position = match.end()
    tokens.append(Token("end", "", Span(position, position + 1)))
    return tokens


def _unexpected(source: Source, position: int) -> NotationError:
    character = source.text[position]
    hint = _INSTEAD.get(character)
    message = f"unexpected {character!r}" + (f": {hint}" if hint else "")
    return source.error(message, Span(position, position + 1))
