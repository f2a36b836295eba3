"""What each request of the page does: an iterator of plain data, each shown when it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.dimensions import shape_text
from derivatrix.compiler.playground.compiled import encoded, packaged, report_html, verified
from derivatrix.compiler.playground.fields import Fields
from derivatrix.compiler.playground.measure import measured
from derivatrix.compiler.playground.subject import subject
from derivatrix.compiler.playground.times import times
from derivatrix.compiler.report.highlight import highlighted
from derivatrix.compiler.report.parts import TITLES, derivation, formulas, kinds, size_names
from derivatrix.compiler.report.structure import blocks

Answers = Iterator[dict[str, Any]]


def derive(fields: Fields) -> Answers:
    """The formulas of a function in all styles, and its derivations line by line."""
    wanted = subject(fields)
    yield {"names": wanted.names}
    function = wanted.function()
    yield {"declared": _declared(function), "python": python(wanted.declaration)}
    for kind in kinds(function):
        yield {"kind": kind, "title": TITLES[kind], "formulas": list(formulas(function, kind))}
    yield {"steps": [derivation(function, name) for name in function.wrt]}


def module(fields: Fields) -> Answers:
    """The generated module."""
    generated = generate(subject(fields).function())
    yield {"module": python(generated.text), "lines": generated.text.count("\n")}


def structure(fields: Fields) -> Answers:
    """The Jacobian, or the Hessian of a scalar function, at the sizes asked for."""
    found = blocks(subject(fields).function(), fields["sizes"])
    yield {"blocks": [{**block, "cells": encoded(block["cells"].tobytes())} for block in found]}


def verify(fields: Fields) -> Answers:
    """The compiled module's report."""
    for found in verified(subject(fields).function()):
        yield {"progress": found} if isinstance(found, str) else {"report": report_html(found)}


def measure(fields: Fields) -> Answers:
    """Times of the gradient or VJP."""
    for found in measured(subject(fields).function()):
        yield {"progress": found} if isinstance(found, str) else {"plot": times(found)}


def package(fields: Fields) -> Answers:
    """A verified package as an archive."""
    for found in packaged(subject(fields).function()):
        if isinstance(found, str):
            yield {"progress": found}
        else:
            yield {"zip": encoded(found), "summary": "Verified."}


def python(text: str) -> dict[str, str]:
    """A Python text, and as HTML with its parts in classes."""
    return {"text": text, "html": highlighted(text)}


def _declared(function: Function) -> dict[str, Any]:
    inputs = [f"{leaf.name} {shape_text(leaf.shape)}" for leaf in function.inputs]
    return {
        "signature": f"({', '.join(inputs)}) → {shape_text(function.expression.shape)}",
        "scalar": not function.expression.shape,
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
