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
from derivatrix.compiler.formulas.printers import STYLES, math_printers
from derivatrix.compiler.formulas.printers.mathematics import MathPrinter
from derivatrix.compiler.formulas.printers.numpy import NumPy
from derivatrix.compiler.formulas.sharing import definition_texts
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
    if style not in STYLES:
        raise ValueError(f"unknown style {style!r}; expected one of {', '.join(STYLES)}")
    printer = STYLES[style].printer
    if not isinstance(printer, MathPrinter):
        return _numpy(node, NumPy(sizes))
    (_, text), *definitions = _equations("", node, style, names)
    return printer.where(text, definitions) if definitions else text


def render_equation(
    left: str, node: Node, style: str, names: Mapping[str, str] | None = None
) -> str:
    """`left` = the formula of `node`, with a line for each shared part; see `render`.

    left: what is defined, in the same style. Where the formula has indices, they are added to
    it: "J" becomes "J[i,j,k]". style: any but numpy.
    """
    return math_printers()[style].equations(_equations(left, node, style, names))


def _equations(
    left: str, node: Node, style: str, names: Mapping[str, str] | None
) -> list[tuple[str, str]]:
    """The left and right sides of the equation, and of the definitions that it uses."""
    printer = math_printers()[style]
    builder = Notation(node, names, STYLES[style].by_index)
    tree, indices = builder.result()
    first = printer.left_side(left, indices), printer.text(tree)
    return [first, *definition_texts(printer, tree, builder.definitions)]


def _numpy(node: Node, printer: NumPy) -> str:
    """One expression; shared parts are named by assignment expressions in a tuple."""
    builder = Arrays(node, printer)
    tree, _ = builder.result()
    text = printer.real(tree) if isinstance(tree, Number) else printer.text(tree)
    parts = [f"{part.name.python} := {printer.text(part.tree)}" for part in builder.definitions]
    return f"({', '.join([*parts, text])})[-1]" if parts else text
