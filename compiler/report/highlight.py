"""Syntax highlighting of Python texts."""

from __future__ import annotations

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from pygments.styles import get_style_by_name
from pygments.token import STANDARD_TYPES


def highlighted(text: str) -> str:
    """Write a text as HTML whose tokens have CSS classes."""
    return highlight(text, PythonLexer(), HtmlFormatter(nowrap=True))


def code_style() -> str:
    """Write the CSS colours of these classes, for light and for dark pages."""
    light, dark = (get_style_by_name(name) for name in ("friendly", "github-dark"))
    rows = []
    for token, name in STANDARD_TYPES.items():
        colours = [style.style_for_token(token)["color"] for style in (light, dark)]
        if name and all(colours):
            rows.append("code .{} {{ color: light-dark(#{}, #{}); }}".format(name, *colours))
    return "\n".join(rows)
