"""Tokens of a text, and errors that point at a place in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import NotationError


class Span(NamedTuple):
    """The range text[start:stop]."""

    start: int
    stop: int


MAX_CHARACTERS = 100_000
"""Longest text that is read."""
CONTEXT_CHARACTERS = 100
"""Number of characters of a long line that errors show on either side of a place."""


@dataclass(frozen=True)
class Source:
    """The text to read. title: the beginning of error messages."""

    text: str
    title: str = ""

    def error(self, message: str, span: Span) -> NotationError:
        """Make an error with the message, the line of the place (part of a long one), and carets
        under it."""
        begin = max(self.text.rfind("\n", 0, span.start) + 1, span.start - CONTEXT_CHARACTERS)
        line = self.text[begin:].partition("\n")[0][: 2 * CONTEXT_CHARACTERS]
        count = max(1, min(span.stop, begin + len(line)) - span.start)
        visible_line = line.replace("\t", " ")
        carets = " " * (span.start - begin) + "^" * count
        return NotationError(f"{self.title}{message}\n    {visible_line}\n    {carets}")


class Token(NamedTuple):
    """`kind` is "number", "name", "text" (in quotation marks), "end", or the operator itself."""

    kind: str
    text: str
    span: Span

    @property
    def shown(self) -> str:
        """The token in an error message."""
        return "the end of the text" if self.kind == "end" else shown(self.text)


# in a number, a dot before an operator belongs to that: 2.*x is 2 .* x
_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<number>(?:\d+(?:\.(?![*/^'])\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<name>[^\W\d]\w*)
    | "(?P<text>[^"\n]*)"
    | (?P<operator>\.[*/^]|\|\||[-+*/^\\'()\[\],;:|=])
    """,
    re.VERBOSE,
)
_ADVICE = {
    "**": "a power is written ^, entry by entry .^",
    "//": "division is written /, entry by entry ./",
    "@": "the matrix product is written *",
    "{": "blocks are written [A, B; C, D]",
    "’": "the transpose is written with a straight apostrophe '",
    "−": "minus is written -",
    "⊤": "the transpose is written '",
    "‖": "norms are written ||x||",
    ".": "elementwise operators are .* ./ .^, the transpose is '",
    '"': "the quotation mark is never closed",
}


def tokenize(source: Source) -> list[Token]:
    """Split a text into tokens, and append an "end". Raises NotationError for a character that
    begins no token, and for a text that is too long."""
    if len(source.text) > MAX_CHARACTERS:
        message = f"the text has {len(source.text)} letters; at most {MAX_CHARACTERS} are read"
        raise source.error(message, Span(MAX_CHARACTERS, MAX_CHARACTERS + 1))
    tokens = []
    position = 0
    while position < len(source.text):
        for unusual in ("**", "//"):
            if source.text.startswith(unusual, position):
                raise source.error(_ADVICE[unusual], Span(position, position + 2))
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
    hint = _ADVICE.get(character)
    message = f"unexpected {character!r}" + (f": {hint}" if hint else "")
    return source.error(message, Span(position, position + 1))
