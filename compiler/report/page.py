"""Reports on functions as pages of HTML, and as part of a notebook."""

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
from derivatrix.compiler.report.parts import (
    LABELS,
    TITLES,
    derivations,
    formulas,
    kinds,
    size_names,
)
from derivatrix.compiler.report.structure import blocks
from derivatrix.runtime.errors import BuildError, ShapeError
from derivatrix.runtime.page import STYLE, document, html_table
from derivatrix.runtime.sampling import meets
from derivatrix.runtime.text_file import write_text

PICTURE_SIZES = (3, 4, 2, 5, 1)
"""Sizes of the arrays in pictures, in the order in which they are tried."""


def write_report(functions: Sequence[Function], path: Path, target: str = "cpu") -> None:
    """Write a page on the functions; an error leaves the file as it was. Raises BuildError if it
    cannot be written, and the errors of `generate`."""
    title = ", ".join(function.name for function in functions)
    text = document(title, _body(functions, target), code_style())
    try:
        write_text(path, text)
    except OSError as error:
        raise BuildError(f"{path}: cannot be written: {error.strerror}") from error


def embedded(function: Function) -> str:
    """Write a report on one function as an element of a page."""
    style = f"<style>{STYLE.read_text('utf-8')}{code_style()}</style>"
    return f'<div class="derivatrix">{style}{_body([function], "cpu")}</div>'


def _body(functions: Sequence[Function], target: str) -> str:
    template = environment(autoescape=True).get_template("report.html.jinja")
    return template.render(reports=(_parts(function, target) for function in functions))


def _parts(function: Function, target: str) -> dict[str, Any]:
    """Collect the texts of one function for the template."""
    names = ", ".join(leaf.name for leaf in function.inputs)
    return {
        "signature": f"{function.name}({names}) → {function.result_text}",
        "inputs": html_table([*_inputs(function)]),
        "declaration": "\n".join(
            f"{name} = {text}" if name else text for name, text in function.declarations.items()
        ),
        "requirements": function.requirements,
        "kinds": [
            {"title": TITLES[kind], "formulas": _labelled(function, kind)}
            for kind in kinds(function)
        ],
        "derivations": [*derivations(function)],
        "structured": "Hessian" if function.is_scalar else "Jacobian",
        "pictures": _pictures(function),
        "module": highlighted(generate(function, target).text),
    }


def _labelled(function: Function, kind: str) -> Iterator[dict[str, Any]]:
    for formula in formulas(function, kind):
        texts = {LABELS[style]: text for style, text in formula["texts"].items()}
        yield {"math": formula["math"], "texts": texts}


def _inputs(function: Function) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of inputs."""
    yield ("input", "shape", "structure", "")
    for leaf in function.inputs:
        marks = ["differentiated"] * (leaf.name in function.wrt)
        marks += ["with batch axes"] * (leaf.name in function.batch)
        yield (leaf.name, shape_text(leaf.shape), leaf.structure, ", ".join(marks))


def _pictures(function: Function) -> list[dict[str, Any]]:
    """Draw the blocks of the Jacobian or Hessian at small sizes; none if no such sizes meet the
    requirements, or blocks are too large."""
    names = size_names(function)
    distinct_choices = itertools.permutations(PICTURE_SIZES, len(names))
    choices = itertools.chain(distinct_choices, itertools.product(PICTURE_SIZES, repeat=len(names)))
    sizes = (dict(zip(names, choice, strict=True)) for choice in choices)
    fitting = (choice for choice in sizes if meets(choice, function.requirements))
    try:
        pictures = list(blocks(function, next(fitting, {})))
    except ShapeError:
        return []
    return [{**picture, "squares": list(_squares(picture["cells"]))} for picture in pictures]


def _squares(cells: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield a square for each nonzero entry: its position, sign and relative magnitude."""
    for y, x in np.argwhere(cells):
        cell = int(cells[y, x])
        magnitude = 0.4 + 0.6 * abs(cell) / 127
        yield {
            "x": x,
            "y": y,
            "sign": "positive" if cell > 0 else "negative",
            "share": f"{magnitude:.2f}",
        }
