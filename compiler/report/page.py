"""A report on functions: a page of HTML for browsers and printers, and the same in notebooks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.emit.skeleton import environment
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.dimensions import shape_text
from derivatrix.compiler.report.highlight import code_style, highlighted
from derivatrix.compiler.report.parts import LABELS, TITLES, derivation, formulas, kinds, size_names
from derivatrix.compiler.report.structure import blocks
from derivatrix.runtime.errors import BuildError, ShapeError
from derivatrix.runtime.page import STYLE, document, html_table
from derivatrix.runtime.sampling import meets
from derivatrix.runtime.text_file import write_text

SIZES = (3, 4, 2, 5, 1)
"""Sizes of the pictures, those tried first in front."""


def write_report(functions: Sequence[Function], path: Path, target: str = "cpu") -> None:
    """Write a page on the functions, which is complete or left as it was. Raises BuildError where
    it cannot be written, and what `generate` raises."""
    title = ", ".join(function.name for function in functions)
    text = document(title, _body(functions, target), code_style())
    try:
        write_text(path, text)
    except OSError as error:
        raise BuildError(f"{path}: cannot be written: {error.strerror}") from error


def embedded(function: Function) -> str:
    """The same for a place within a page."""
    style = f"<style>{STYLE.read_text('utf-8')}{code_style()}</style>"
    return f'<div class="derivatrix">{style}{_body([function], "cpu")}</div>'


def _body(functions: Sequence[Function], target: str) -> str:
    template = environment(autoescape=True).get_template("report.html.jinja")
    return template.render(reports=(_parts(function, target) for function in functions))


def _parts(function: Function, target: str) -> dict[str, Any]:
    """What the template says of one function."""
    scalar = not function.expression.shape
    names = ", ".join(leaf.name for leaf in function.inputs)
    return {
        "signature": f"{function.name}({names}) → {shape_text(function.expression.shape)}",
        "inputs": html_table([*_inputs(function)]),
        "declaration": function.declaration,
        "requirements": function.requirements,
        "kinds": [
            {"title": TITLES[kind], "formulas": _labelled(function, kind)}
            for kind in kinds(function)
        ],
        "derivations": [derivation(function, name) for name in function.wrt],
        "structured": "Hessian" if scalar else "Jacobian",
        "pictures": _pictures(function),
        "module": highlighted(generate(function, target).text),
    }


def _labelled(function: Function, kind: str) -> Iterator[dict[str, Any]]:
    for formula in formulas(function, kind):
        texts = {LABELS[style]: text for style, text in formula["texts"].items()}
        yield {"math": formula["math"], "texts": texts}


def _inputs(function: Function) -> Iterator[Sequence[str]]:
    """The table of inputs."""
    yield ("input", "shape", "structure", "")
    for leaf in function.inputs:
        marks = ["differentiated"] * (leaf.name in function.wrt)
        marks += ["with a batch axis"] * (leaf.name in function.batch)
        yield (leaf.name, shape_text(leaf.shape), leaf.structure, ", ".join(marks))


def _pictures(function: Function) -> list[dict[str, Any]]:
    """The blocks of the Jacobian or Hessian with the squares of their entries, for small sizes;
    none where there are no such sizes, or blocks are too large."""
    names = size_names(function)
    different = itertools.permutations(SIZES, len(names))
    choices = itertools.chain(different, itertools.product(SIZES, repeat=len(names)))
    sizes = (dict(zip(names, choice, strict=True)) for choice in choices)
    fitting = (each for each in sizes if meets(each, function.requirements))
    try:
        found = list(blocks(function, next(fitting, {})))
    except ShapeError:
        return []
    return [{**block, "squares": list(_squares(block["cells"]))} for block in found]


def _squares(cells: np.ndarray) -> Iterator[dict[str, Any]]:
    """Where the entries that are not 0 lie, their sign, and how far they are from 0."""
    for y, x in np.argwhere(cells):
        cell = int(cells[y, x])
        share = 0.4 + 0.6 * abs(cell) / 127
        yield {
            "x": x,
            "y": y,
            "sign": "positive" if cell > 0 else "negative",
            "share": f"{share:.2f}",
        }
