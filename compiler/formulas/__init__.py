"""Formulas as text: nodes of the intermediate representation in several styles.

- unicode, latex: matrix notation, or index notation where there is none;
- index: index notation throughout;
- numpy: an expression that evaluates, with only `np`, `scipy` and the names of leaves and
  dimensions in scope, to the node's array.
"""

from __future__ import annotations

from collections.abc import Mapping

from derivatrix.compiler.formulas.arrays import Arrays
from derivatrix.compiler.formulas.notation import Notation
from derivatrix.compiler.formulas.printers import STYLES
from derivatrix.compiler.formulas.printers.base import Printer
from derivatrix.compiler.formulas.printers.mathematics import MathPrinter
from derivatrix.compiler.formulas.printers.numpy import NumPy
from derivatrix.compiler.formulas.sharing import definitions
from derivatrix.compiler.formulas.tree import Number
from derivatrix.compiler.ir.nodes import Node

__all__ = ["STYLES", "render", "render_equation"]


def render(
    node: Node,
    style: str,
    names: Mapping[str, str] | None = None,
    sizes: Mapping[str, str] | None = None,
) -> str:
    """The formula of `node` on one line.

    names: for a leaf's name, what to show instead; for a cotangent or tangent, the name that
    gets the accent ({"cotangent": "Y", "tangent": "X"}). The numpy style keeps leaves' names.
    sizes: for a dimension's name, its NumPy text ({"n": "X.shape[0]"}).
    Raises ValueError for an unknown style, UnsupportedError for a function without a spelling.
    """
    printer = _printer(style)
    if not isinstance(printer, MathPrinter):
        return _numpy(node, NumPy(sizes))
    builder = Notation(node, names, STYLES[style].by_index)
    tree, _ = builder.result()
    lines = definitions(printer, tree, builder.definitions)
    text = printer.text(tree)
    return printer.where(text, lines) if lines else text


def render_equation(
    left: str,
    node: Node,
    style: str,
    names: Mapping[str, str] | None = None,
    sizes: Mapping[str, str] | None = None,
) -> str:
    """`left` = the formula of `node`, with a line for each shared part; see `render`.

    left: what is defined, in the same style. Where the formula has indices, they are added to
    it: "J" becomes "J[i,j,k]".
    """
    printer = _printer(style)
    if not isinstance(printer, MathPrinter):
        return f"{left} = {_numpy(node, NumPy(sizes))}"
    builder = Notation(node, names, STYLES[style].by_index)
    tree, indices = builder.result()
    first = printer.left_side(left, indices), printer.text(tree)
    return printer.equations([first, *definitions(printer, tree, builder.definitions)])


def _printer(style: str) -> Printer:
    if style not in STYLES:
        raise ValueError(f"unknown style {style!r}; expected one of {', '.join(STYLES)}")
    return STYLES[style].printer


def _numpy(node: Node, printer: NumPy) -> str:
    """One expression; shared parts are named by assignment expressions in a tuple."""
    builder = Arrays(node, printer)
    tree, _ = builder.result()
    text = printer.real(tree) if isinstance(tree, Number) else printer.text(tree)
    parts = [f"{part.name.python} := {printer.text(part.tree)}" for part in builder.definitions]
    return f"({', '.join([*parts, text])})[-1]" if parts else text
