"""Formulas in LaTeX as MathML, which browsers show by themselves."""

from __future__ import annotations

import re
from html import escape
from xml.etree import ElementTree

from latex2mathml.converter import convert

_SPACE = "http://www.w3.org/1998/Math/MathML"
_BINARY = ("mod",)
"""Words that stand between two terms; all others are names."""

ElementTree.register_namespace("", _SPACE)


def mathml(latex: str, display: str = "block") -> str:
    """The formula as an element `math`."""
    known = latex.replace("{aligned}", "{align*}").replace(r"\mathrm{", r"\operatorname{")
    known = re.sub(r"(\\begin{[^}]*})", r"\1{}", known)  # else a bracket that follows is an option
    root = ElementTree.fromstring(convert(known, display=display))
    for element in root.iter(f"{{{_SPACE}}}mo"):
        word = element.text or ""
        if word.replace("_", "").isalnum() and word not in _BINARY:
            element.tag = f"{{{_SPACE}}}mi"
            element.attrib = {"mathvariant": "normal"} if len(word) == 1 else {}
    text = ElementTree.tostring(root, encoding="unicode")
    return text.replace(f' xmlns="{_SPACE}"', "")  # HTML knows the element


def prose(text: str) -> str:
    """A sentence in LaTeX's text mode, with formulas between dollars, as HTML."""
    parts = re.split(r"\$([^$]*)\$", text)
    return "".join(
        mathml(part, "inline") if number % 2 else escape(part.replace(r"\_", "_"))
        for number, part in enumerate(parts)
    )
