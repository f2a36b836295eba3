"""Formulas in LaTeX as MathML, which browsers show by themselves."""

from __future__ import annotations

import re
from html import escape
from xml.etree import ElementTree

from latex2mathml.converter import convert

_NAMESPACE = "http://www.w3.org/1998/Math/MathML"
_BINARY_OPERATORS = ("mod",)
"""Words between two terms; all other words are names."""

ElementTree.register_namespace("", _NAMESPACE)


def mathml(latex: str, display: str = "block") -> str:
    """Convert a formula to an element `math`."""
    # latex2mathml does not know "aligned" and "\mathrm"; it takes a bracket after "\begin{...}"
    # for an option.
    supported = latex.replace("{aligned}", "{align*}").replace(r"\mathrm{", r"\operatorname{")
    supported = re.sub(r"(\\begin{[^}]*})", r"\1{}", supported)
    root = ElementTree.fromstring(convert(supported, display=display))
    for element in root.iter(f"{{{_NAMESPACE}}}mo"):
        word = element.text or ""
        if word.replace("_", "").isalnum() and word not in _BINARY_OPERATORS:
            element.tag = f"{{{_NAMESPACE}}}mi"
            element.attrib = {"mathvariant": "normal"} if len(word) == 1 else {}
    text = ElementTree.tostring(root, encoding="unicode")
    return text.replace(f' xmlns="{_NAMESPACE}"', "")  # HTML needs no namespace


def prose(text: str) -> str:
    """Convert a sentence in LaTeX's text mode, with formulas between dollars, to HTML."""
    parts = re.split(r"\$([^$]*)\$", text)
    return "".join(
        mathml(part, "inline") if number % 2 else escape(part.replace(r"\_", "_"))
        for number, part in enumerate(parts)
    )
