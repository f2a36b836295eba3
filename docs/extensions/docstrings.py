"""Docstrings, which are plain text with `code` and indented examples, as reStructuredText.

Paragraphs such as "wrt: the inputs to differentiate by. batch: ..." become a list of parameters."""

import inspect
import re
from collections.abc import Collection
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx


def lines_of(text: str) -> list[str]:
    """Mark code in paragraphs, and make literal blocks of indented lines."""
    lines: list[str] = []
    in_code = False
    for line in text.split("\n"):
        indented = line.startswith("    ")
        if indented and not in_code:
            lines += ["", "::", ""]
        if in_code and line and not indented:
            lines.append("")
        in_code = indented or (in_code and not line)
        lines.append(line if in_code else _marked(line))
    return lines


def _marked(line: str) -> str:
    pieces = re.split("`+([^`]+)`+", line)
    plain = [re.sub(r"([\\*|_])", r"\\\1", piece) for piece in pieces[::2]]
    code = [f"``{piece}``" for piece in pieces[1::2]]
    mixed = [piece for pair in zip(plain, [*code, ""], strict=True) for piece in pair]
    return "".join(mixed)


def with_parameters(text: str, names: Collection[str]) -> str:
    """Move the paragraphs that begin with a parameter and a colon to fields at the end."""
    pattern = "|".join(map(re.escape, names))
    paragraphs, fields = list[str](), dict[str, str]()
    for paragraph in text.split("\n\n"):
        if not names or not re.match(rf"(?:{pattern})(?:, \w+)*: ", paragraph):
            paragraphs.append(paragraph)
            continue
        line, *errors = re.split(" (?=Raises )", " ".join(paragraph.split()), maxsplit=1)
        paragraphs += errors
        pieces = re.split(rf"(?:^|(?<=[.;)] ))((?:{pattern})(?:, (?:{pattern}))*): ", line)[1:]
        for title, body in zip(pieces[::2], pieces[1::2], strict=True):
            fields |= dict.fromkeys(title.split(", "), body.strip(" ;"))
    if fields:  # of all parameters, in their order: Sphinx adds those without text at the end
        paragraphs.append("\n".join(f":param {name}: {fields.get(name, '')}" for name in names))
    return "\n\n".join(paragraphs)


def parameters(subject: object) -> list[str]:
    """List the names of the parameters of a function or class; none for other objects."""
    try:
        return [*inspect.signature(subject).parameters]  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return []


def process(
    app: Sphinx, what: str, name: str, subject: object, options: object, lines: list[str]
) -> None:
    lines[:] = lines_of(with_parameters("\n".join(lines).strip(), parameters(subject)))


class Functions(Directive):
    """Functions of derivatrix by their names, each with its docstring."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        names = " ".join(self.content).split()
        lines = [f".. autofunction:: derivatrix.{name}" for name in names]
        parent = nodes.Element()
        self.state.nested_parse(StringList(lines, "functions"), self.content_offset, parent)
        return parent.children


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("functions", Functions)
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
