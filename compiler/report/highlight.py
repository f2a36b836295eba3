"""Python's texts in colours."""

from __future__ import annotations

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from pygments.styles import get_style_by_name
from pygments.token import STANDARD_TYPES


def highlighted(text: str) -> str:
    """The text as HTML, with its parts in classes."""
    return highlight(text, PythonLexer(), HtmlFormatter(nowrap=True))


def code_style() -> str:
    """The classes' colours, for light pages and for dark ones."""
    light, dark = (get_style_by_name(name) for name in ("friendly", "github-dark"))
    rows = []
    for token, name in STANDARD_TYPES.items():
        colours = [style.style_for_token(token)["color"] for style in (light, dark)]
        if name and all(colours):
            rows.append("code .{} {{ color: light-dark(#{}, #{}); }}".format(name, *colours))
    return "\n".join(rows)
