"""Docstrings, which are plain text with `code` and indented examples, as reStructuredText."""

import re
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx


def lines_of(text: str) -> list[str]:
    """Paragraphs with marked code, and indented blocks as they stand."""
    found: list[str] = []
    in_code = False
    for line in text.split("\n"):
        indented = line.startswith("    ")
        if indented and not in_code:
            found += ["", "::", ""]
        if in_code and line and not indented:
            found.append("")
        in_code = indented or (in_code and not line)
        found.append(line if in_code else _marked(line))
    return found


def _marked(line: str) -> str:
    pieces = re.split("`+([^`]+)`+", line)
    plain = [re.sub(r"([\\*|_])", r"\\\1", piece) for piece in pieces[::2]]
    code = [f"``{piece}``" for piece in pieces[1::2]]
    mixed = [piece for pair in zip(plain, [*code, ""], strict=True) for piece in pair]
    return "".join(mixed)


def process(
    app: Sphinx, what: str, name: str, subject: object, options: object, lines: list[str]
) -> None:
    lines[:] = lines_of("\n".join(lines))


class Functions(Directive):
    """Functions of derivatrix by their names, each with its docstring."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        names = " ".join(self.content).split()
        lines = [f".. autofunction:: derivatrix.{name}" for name in names]
        found = nodes.Element()
        self.state.nested_parse(StringList(lines, "functions"), self.content_offset, found)
        return found.children


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("functions", Functions)
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
