"""What each request of the page does: an iterator of plain data, each shown when it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.formulas.printers import math_printers
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.dimensions import shape_text
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.playground.compiled import encoded, packaged, report_html, verified
from derivatrix.compiler.playground.mathml import mathml, prose
from derivatrix.compiler.playground.measure import measured
from derivatrix.compiler.playground.plot import plot
from derivatrix.compiler.playground.structure import blocks
from derivatrix.compiler.playground.subject import subject
from derivatrix.runtime.errors import DeclarationError

Data = Mapping[str, Any]
Answers = Iterator[dict[str, Any]]

TITLES = {
    "value": "Value",
    "gradient": "Gradient",
    "vjp": "VJP",
    "jvp": "JVP",
    "jacobian": "Jacobian",
    "hessian": "Hessian",
    "hvp": "HVP",
}
"""The kinds in the order of the page."""


def derive(data: Data) -> Answers:
    """The formulas of a function in all styles, and its derivations line by line."""
    wanted = subject(data)
    yield {"names": wanted.names}
    function = wanted.function()
    yield {"declared": _declared(function), "python": python(wanted.declaration)}
    for kind in _kinds(function):
        yield {"kind": kind, "title": TITLES[kind], "formulas": list(_formulas(function, kind))}
    yield {"steps": [_steps(function, name) for name in function.wrt]}


def module(data: Data) -> Answers:
    """The generated module."""
    generated = generate(subject(data).function())
    yield {"module": python(generated.text), "lines": generated.text.count("\n")}


def structure(data: Data) -> Answers:
    """The Jacobian, or the Hessian of a scalar function, at the sizes asked for."""
    sizes = data.get("sizes")
    if not isinstance(sizes, dict):
        raise DeclarationError(f"sizes are numbers by name, not {shown(sizes)}")
    yield {"blocks": list(blocks(subject(data).function(), sizes))}


def verify(data: Data) -> Answers:
    """The compiled module's report."""
    for found in verified(subject(data).function()):
        yield {"progress": found} if isinstance(found, str) else {"report": report_html(found)}


def measure(data: Data) -> Answers:
    """Times of the gradient or VJP."""
    for found in measured(subject(data).function()):
        yield {"progress": found} if isinstance(found, str) else {"plot": plot(found)}


def package(data: Data) -> Answers:
    """A verified package as an archive."""
    for found in packaged(subject(data).function()):
        if isinstance(found, str):
            yield {"progress": found}
        else:
            yield {"zip": encoded(found), "summary": "Verified."}


def python(text: str) -> dict[str, str]:
    """A Python text, and as HTML with its parts in classes."""
    return {"text": text, "html": highlight(text, PythonLexer(), HtmlFormatter(nowrap=True))}


def _kinds(function: Function) -> list[str]:
    """The kinds to show: the Jacobian of a scalar function is its gradient, and so is its VJP but
    for a factor."""
    scalar = not function.expression.shape
    left_out = ("vjp", "jacobian") if scalar else ()
    return [kind for kind in TITLES if kind in function.kinds and kind not in left_out]


def _declared(function: Function) -> dict[str, Any]:
    inputs = [f"{leaf.name} {shape_text(leaf.shape)}" for leaf in function.inputs]
    return {
        "signature": f"({', '.join(inputs)}) → {shape_text(function.expression.shape)}",
        "scalar": not function.expression.shape,
        "wrt": list(function.wrt),
        "sizes": sorted(
            {str(s) for leaf in function.inputs for n in leaf.shape for s in n.free_symbols}
        ),
    }


def _formulas(function: Function, kind: str) -> Iterator[dict[str, Any]]:
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


def _steps(function: Function, name: str) -> dict[str, Any]:
    steps = function.steps(name, "latex")
    return {
        "by": name,
        "lines": [{"math": mathml(step.text), "reason": prose(step.reason)} for step in steps],
        "text": str(function.steps(name)),
    }


REQUESTS: Mapping[str, Callable[[Data], Answers]] = {
    "derive": derive,
    "structure": structure,
    "module": module,
    "verify": verify,
    "measure": measure,
    "package": package,
}
