"""The parts of a report on a function: formulas in all styles and derivations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from derivatrix.compiler.differentiate.derivation import Equation, equations
from derivatrix.compiler.formulas.printers import math_printers
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.report.mathml import mathml, prose

TITLES = {
    "value": "Value",
    "gradient": "Gradient",
    "vjp": "VJP",
    "jvp": "JVP",
    "jacobian": "Jacobian",
    "hessian": "Hessian",
    "hvp": "HVP",
}
"""Titles of the kinds, in the order of a page."""

LABELS = {
    "unicode": "Text",
    "latex": "LaTeX",
    "numpy": "NumPy",
    "index": "Index",
    "vec": "Vec",
    "vec-latex": "Vec LaTeX",
}
"""Titles of the styles."""


def kinds(function: Function) -> list[str]:
    """List the kinds to show. The Jacobian of a scalar function, its gradient, and the VJP, a
    multiple of it, are left out."""
    redundant = ("vjp", "jacobian") if function.is_scalar else ()
    return [kind for kind in TITLES if kind in function.kinds and kind not in redundant]


def formulas(function: Function, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the formulas of a kind: the title, MathML, and texts by style."""
    derivatives = function.derivatives
    lines = {style: derivatives.equation_lines(kind, style) for style in math_printers()}
    for position, key in enumerate(derivatives.results(kind)):
        title = derivatives.title(kind, tuple(dict.fromkeys(key)), " and ")
        texts = {style: style_lines[position] for style, style_lines in lines.items()}
        yield {
            "title": TITLES[kind] + title.removeprefix(kind),
            "name": re.sub(r"\W+", "_", title if len(derivatives.results(kind)) > 1 else kind),
            "math": mathml(texts["latex"]),
            "vec": mathml(texts["vec-latex"]),
            "texts": {
                style: text
                for style, text in texts.items()
                if not style.startswith("vec") or text not in (texts["unicode"], texts["latex"])
            }
            | {"numpy": derivatives.formula(kind, key or None, "numpy")},
        }


def derivations(function: Function) -> Iterator[dict[str, Any]]:
    """Derive the gradient or VJP of each output by each input line by line."""
    for output_name, output in zip(function.output_names or ("",), function.by_output, strict=True):
        for name in output.wrt:
            yield _derivation(output, name, output_name)


def _derivation(function: Function, name: str, output_name: str) -> dict[str, Any]:
    """Derive the gradient or VJP by an input line by line, as MathML and as text."""
    text = str(function.steps(name))
    steps = equations(function.derivatives, name, "latex")
    return {
        "by": f"{name}, of {output_name}" if output_name else name,
        "lines": [
            {"math": _on_lines(equation), "reason": prose(reason)} for equation, reason in steps
        ],
        "text": text,
    }


def _on_lines(equation: Equation) -> str:
    """Write an equation as MathML, its definitions on lines of their own, as lines are narrow."""
    lines = [rf"\text{{where }} {left} = {right}" for left, right in equation.definitions]
    return "".join(map(mathml, [equation.text, *lines]))


def size_names(function: Function) -> list[str]:
    """List the dimensions in the shapes of the inputs."""
    return sorted({str(s) for leaf in function.inputs for n in leaf.shape for s in n.free_symbols})
