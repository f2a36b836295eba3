"""Formulas as text: nodes of the intermediate representation in four styles.

- unicode, latex: matrix notation, or index notation where there is none;
- index: index notation throughout;
- numpy: an expression that evaluates, with only `np`, `scipy` and the names of leaves and
  dimensions in scope, to the node's array.
"""

from __future__ import annotations

from collections.abc import Mapping

from derivatrix.compiler.formulas.arrays import Arrays
from derivatrix.compiler.formulas.build import Builder
from derivatrix.compiler.formulas.latex import LATEX
from derivatrix.compiler.formulas.notation import Notation
from derivatrix.compiler.formulas.numpy import NumPy
from derivatrix.compiler.formulas.sharing import conventions
from derivatrix.compiler.formulas.tree import Indices, Number, Tree
from derivatrix.compiler.formulas.unicode import UNICODE, Unicode
from derivatrix.compiler.ir.nodes import Node

STYLES = ("unicode", "latex", "numpy", "index")

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
    if style == "numpy":
        return _numpy(node, NumPy(sizes))
    printer, builder = _notation(node, style, names)
    tree, _ = builder.result()
    lines = _definitions(printer, builder, tree)
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
    if style == "numpy":
        return f"{left} = {_numpy(node, NumPy(sizes))}"
    printer, builder = _notation(node, style, names)
    tree, indices = builder.result()
    first = _left(printer, left, indices), printer.text(tree)
    return printer.equations([first, *_definitions(printer, builder, tree)])


def _notation(node: Node, style: str, names: Mapping[str, str] | None) -> tuple[Unicode, Notation]:
    if style not in STYLES:
        raise ValueError(f"unknown style {style!r}; expected one of {', '.join(STYLES)}")
    printer = LATEX if style == "latex" else UNICODE
    return printer, Notation(node, names, by_index=style == "index")


def _left(printer: Unicode, left: str, indices: Indices) -> str:
    texts = [printer.dimension(index) for index in indices if index is not None]
    return printer.indices(left, texts) if texts else left


def _definitions(printer: Unicode, builder: Builder, tree: Tree) -> list[tuple[str, str]]:
    trees = [tree, *(part.tree for part in builder.definitions)]
    lines = [
        (_left(printer, printer.text(part.name), part.indices), printer.text(part.tree))
        for part in builder.definitions
    ]
    return lines + conventions(printer, trees)


def _numpy(node: Node, printer: NumPy) -> str:
    """One expression; shared parts are named by assignment expressions in a tuple."""
    builder = Arrays(node, printer)
    tree, _ = builder.result()
    text = printer.real(tree) if isinstance(tree, Number) else printer.text(tree)
    parts = [f"{part.name.python} := {printer.text(part.tree)}" for part in builder.definitions]
    return f"({', '.join([*parts, text])})[-1]" if parts else text
