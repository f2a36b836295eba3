"""What there is to a function: its inputs, formulas in all styles, derivations, pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
"""The kinds in the order of a page."""

LABELS = {
    "unicode": "Text",
    "latex": "LaTeX",
    "numpy": "NumPy",
    "index": "Index",
    "vec": "Vec",
    "vec-latex": "Vec LaTeX",
}
"""What pages call the styles."""


def kinds(function: Function) -> list[str]:
    """The kinds to show: the Jacobian of a scalar function is its gradient, and so is its VJP but
    for a factor."""
    scalar = not function.expression.shape
    left_out = ("vjp", "jacobian") if scalar else ()
    return [kind for kind in TITLES if kind in function.kinds and kind not in left_out]


def formulas(function: Function, kind: str) -> Iterator[dict[str, Any]]:
    """Each formula of a kind: by which inputs, as MathML, and its texts by their styles."""
    derivatives = function.derivatives
    lines = {style: derivatives.equation_lines(kind, style) for style in math_printers()}
    for position, key in enumerate(derivatives.results(kind)):
        texts = {style: own[position] for style, own in lines.items()}
        yield {
            "by": " and ".join(dict.fromkeys(key)),
            "math": mathml(texts["latex"]),
            "vec": mathml(texts["vec-latex"]),
            "texts": {
                style: text
                for style, text in texts.items()
                if not style.startswith("vec") or text not in (texts["unicode"], texts["latex"])
            }
            | {"numpy": derivatives.formula(kind, key or None, "numpy")},
        }


def derivation(function: Function, name: str) -> dict[str, Any]:
    """How the gradient or VJP by an input comes about, as MathML and as text."""
    steps = function.steps(name, "latex")
    return {
        "by": name,
        "lines": [{"math": mathml(step.text), "reason": prose(step.reason)} for step in steps],
        "text": str(function.steps(name)),
    }


def size_names(function: Function) -> list[str]:
    """The sizes that the inputs' shapes mention."""
    return sorted({str(s) for leaf in function.inputs for n in leaf.shape for s in n.free_symbols})
