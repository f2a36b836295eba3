"""Formulas as text: nodes of the intermediate representation in several styles.

- unicode, latex: matrix notation, or index notation where there is none;
- index: index notation throughout;
- numpy: an expression that evaluates, with only `np`, `scipy` and the names of leaves and
  dimensions in scope, to the node's array;
- vec, vec-latex, vec-numpy: as unicode, latex and numpy, but Jacobians and Hessians with more than
  two axes as matrices between vectors, see `render_vec`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from derivatrix.compiler.formulas.arrays import Arrays
from derivatrix.compiler.formulas.build import Builder
from derivatrix.compiler.formulas.definitions import Definition
from derivatrix.compiler.formulas.indexing import NoMatrixNotation
from derivatrix.compiler.formulas.jacobian_products import multiplied_out
from derivatrix.compiler.formulas.length import length
from derivatrix.compiler.formulas.notation import Notation
from derivatrix.compiler.formulas.printers import STYLES, math_printers
from derivatrix.compiler.formulas.printers.mathematics import MathPrinter
from derivatrix.compiler.formulas.printers.numpy import NumPy
from derivatrix.compiler.formulas.sharing import definition_texts
from derivatrix.compiler.formulas.tree import Indices, Number, Over, Tree
from derivatrix.compiler.formulas.vec import Side, VecArrays, VecNotation
from derivatrix.compiler.ir.nodes import Node

__all__ = ["STYLES", "Side", "render", "render_equation", "render_vec", "render_vec_equation"]

Sides = tuple[Side, Side]
"""What is differentiated, and by what."""

Formula = tuple[Tree, Indices, Sequence[Definition]]
"""A right side, the left side's indices, and what is named in them."""


def render(
    node: Node,
    style: str,
    names: Mapping[str, str] | None = None,
    sizes: Mapping[str, str] | None = None,
    declared: frozenset[str] = frozenset(),
) -> str:
    """The formula of `node` on one line.

    names: for a leaf's name, what to show instead; for a cotangent or tangent, the name that
    gets the accent ({"cotangent": "Y", "tangent": "X"}). The numpy style keeps leaves' names.
    sizes: for a dimension's name, its NumPy text ({"n": "X.shape[0]"}). declared: names of inputs
    and sizes, which neither parts nor signs look like.
    Raises ValueError for an unknown style, UnsupportedError for a function without a spelling.
    """
    if style not in STYLES:
        raise ValueError(f"unknown style {style!r}; expected one of {', '.join(STYLES)}")
    printer = STYLES[style].printer
    if not isinstance(printer, MathPrinter):
        own = NumPy(sizes)
        return _numpy(Arrays(node, own, declared), own)
    return _one_line("", _formula(node, names, style, declared), printer, declared)


def render_vec(
    node: Node,
    style: str,
    sides: Sides,
    names: Mapping[str, str],
    sizes: Mapping[str, str],
    declared: frozenset[str] = frozenset(),
) -> str:
    """The formula of a Jacobian with more than two axes as a matrix, in a vec style; see `render`.

    Raises NoMatrixNotation where there is no vec form.
    """
    printer = STYLES[style].printer
    if not isinstance(printer, MathPrinter):
        own = NumPy(sizes)
        return _numpy(VecArrays(node, own, sides, declared), own)
    built = _built(VecNotation(node, names, sides, declared))
    return _one_line("", built, printer, declared)


def _one_line(left: str, formula: Formula, printer: MathPrinter, declared: frozenset[str]) -> str:
    (_, text), *definitions = _equations(left, formula, printer, declared)
    return printer.where(text, definitions) if definitions else text


def render_equation(
    left: str,
    node: Node,
    style: str,
    names: Mapping[str, str] | None = None,
    declared: frozenset[str] = frozenset(),
) -> str:
    """`left` = the formula of `node`, with a line for each shared part; see `render`.

    left: what is defined, in the same style. Where the formula has indices, they are added to
    it: "J" becomes "J[i,j,k]". style: any but numpy.
    """
    printer = math_printers()[style]
    built = _formula(node, names, style, declared)
    return printer.equations(_equations(left, built, printer, declared))


def render_vec_equation(
    left: str,
    node: Node,
    style: str,
    sides: Sides,
    names: Mapping[str, str],
    declared: frozenset[str] = frozenset(),
) -> str:
    """`left` = the formula of a Jacobian as a matrix; see `render_vec` and `render_equation`."""
    printer = math_printers()[style]
    built = _built(VecNotation(node, names, sides, declared))
    return printer.equations(_equations(left, built, printer, declared))


def _equations(
    left: str, formula: Formula, printer: MathPrinter, declared: frozenset[str]
) -> list[tuple[str, str]]:
    """The left and right sides of the equation, and of the definitions that it uses."""
    tree, indices, definitions = formula
    printer = printer.beside(declared.union(tree.names, *(own.names for own in definitions)))
    first = printer.left_side(left, indices), printer.text(tree)
    return [first, *definition_texts(printer, tree, definitions)]


def _formula(
    node: Node, names: Mapping[str, str] | None, style: str, declared: frozenset[str]
) -> Formula:
    shown = tuple((names or {}).items())
    return formula(node, shown, STYLES[style].by_index, declared)


@lru_cache(maxsize=1024)
def formula(
    node: Node,
    names: tuple[tuple[str, str], ...],
    by_index: bool,
    declared: frozenset[str] = frozenset(),
) -> Formula:
    """The formula of a node for reading; built once for Unicode, LaTeX, and all the places in a
    module that show it. Parts of more than two axes are multiplied out where that leaves entries of
    matrices, without sums over them, and the formula has such parts or becomes shorter."""
    found = _built(Notation(node, dict(names), by_index, declared=declared))
    if node.ndim > 2:
        try:
            other = _built(Notation(multiplied_out(node), dict(names), by_index, declared=declared))
        except NoMatrixNotation:
            return found
        if not (_large(other) or any(tree.counts[Over] for tree in _trees(other))):
            return other if _large(found) or _length(other) < _length(found) else found
    return found


def _large(found: Formula) -> bool:
    """Whether a formula has parts of more than two axes."""
    return any(part.rank > 2 for part in found[2])


def _trees(found: Formula) -> list[Tree]:
    return [found[0], *(part.tree for part in found[2])]


def _length(found: Formula) -> int:
    return sum(map(length, _trees(found)))


def _built(builder: Notation) -> Formula:
    tree, indices = builder.result()
    return tree, indices, builder.definitions


def _numpy(builder: Builder, printer: NumPy) -> str:
    """One expression; shared parts are named by assignment expressions in a tuple."""
    tree, _ = builder.result()
    text = printer.real(tree) if isinstance(tree, Number) else printer.text(tree)
    parts = [f"{part.name.python} := {printer.text(part.tree)}" for part in builder.definitions]
    return f"({', '.join([*parts, text])})[-1]" if parts else text
