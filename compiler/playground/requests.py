"""The page's requests: generators of answers, which the page shows as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.notation.guesses import remarks
from derivatrix.compiler.ir.dimensions import shape_text
from derivatrix.compiler.playground.compiled import (
    base64_text,
    package_steps,
    report_html,
    verification_steps,
)
from derivatrix.compiler.playground.fields import Fields
from derivatrix.compiler.playground.measure import measurements
from derivatrix.compiler.playground.programs import programs
from derivatrix.compiler.playground.subject import subject
from derivatrix.compiler.playground.times import times
from derivatrix.compiler.report.highlight import highlighted
from derivatrix.compiler.report.parts import TITLES, derivations, formulas, kinds, size_names
from derivatrix.compiler.report.structure import blocks

Answers = Iterator[dict[str, Any]]


def derive(fields: Fields) -> Answers:
    """Derive the formulas of a function in all styles, and its derivations line by line."""
    declaration = subject(fields)
    yield {"names": declaration.names, "inputs": declaration.inputs}
    function = declaration.function()
    yield {
        "declared": _declared(function),
        "python": highlighted_text(declaration.declaration),
        "remarks": remarks(declaration.text, declaration.inputs),
    }
    for kind in kinds(function):
        yield {"kind": kind, "title": TITLES[kind], "formulas": _with_programs(function, kind)}
    yield {"steps": [*derivations(function)]}


def module(fields: Fields) -> Answers:
    """Generate the module."""
    generated = generate(subject(fields).function())
    yield {"module": highlighted_text(generated.text), "lines": generated.text.count("\n")}


def structure(fields: Fields) -> Answers:
    """Draw the Jacobian, or the Hessian of a scalar function, at the requested sizes."""
    pictures = blocks(subject(fields).function(), fields["sizes"])
    yield {
        "blocks": [
            {**picture, "cells": base64_text(picture["cells"].tobytes())} for picture in pictures
        ]
    }


def verify(fields: Fields) -> Answers:
    """Compile and verify the module."""
    for step in verification_steps(subject(fields).function()):
        yield {"progress": step} if isinstance(step, str) else {"report": report_html(step)}


def measure(fields: Fields) -> Answers:
    """Measure the gradient or VJP over sizes."""
    for step in measurements(subject(fields).function()):
        yield {"progress": step} if isinstance(step, str) else {"plot": times(step)}


def package(fields: Fields) -> Answers:
    """Build a verified package as an archive."""
    for step in package_steps(subject(fields).function()):
        if isinstance(step, str):
            yield {"progress": step}
        else:
            yield {"zip": base64_text(step), "summary": "Verified."}


def highlighted_text(text: str) -> dict[str, str]:
    """Pair a Python text with its HTML, which is highlighted."""
    return {"text": text, "html": highlighted(text)}


def _with_programs(function: Function, kind: str) -> list[dict[str, Any]]:
    """List the formulas of a kind, whose NumPy texts are functions to run, as are those in JAX and
    PyTorch."""
    inputs = [leaf.name for leaf in function.inputs]
    result = []
    for formula in formulas(function, kind):
        name, texts = formula["name"], formula["texts"]
        result.append({**formula, "texts": texts | programs(name, texts["numpy"], inputs)})
    return result


def _declared(function: Function) -> dict[str, Any]:
    inputs = [f"{leaf.name} {shape_text(leaf.shape)}" for leaf in function.inputs]
    return {
        "signature": f"({', '.join(inputs)}) → {function.result_text}",
        "scalar": function.is_scalar,
        "wrt": list(function.wrt),
        "sizes": size_names(function),
    }


REQUESTS: Mapping[str, Callable[[Fields], Answers]] = {
    "derive": derive,
    "structure": structure,
    "module": module,
    "verify": verify,
    "measure": measure,
    "package": package,
}
