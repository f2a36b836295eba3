"""Formulas: nodes of the intermediate representation as text in several styles.

- unicode, latex: matrix notation, or index notation where there is none;
- index: index notation throughout;
- numpy: an expression that evaluates, with only `np`, `scipy` and the names of leaves and
  dimensions in scope, to the node's array;
- vec, vec-latex, vec-numpy: as unicode, latex and numpy, but Jacobians and Hessians with more than
  two axes as matrices between vectorised arrays.
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
from derivatrix.compiler.formulas.printers.base import ATOM, Text
from derivatrix.compiler.formulas.printers.mathematics import MathPrinter
from derivatrix.compiler.formulas.printers.numpy import NumPy
from derivatrix.compiler.formulas.sharing import definition_texts
from derivatrix.compiler.formulas.tree import Indices, Number, Over, Tree
from derivatrix.compiler.formulas.vec import Side, VecArrays, VecNotation
from derivatrix.compiler.ir.nodes import Node
from derivatrix.compiler.ir.numpy_text import Sizes

__all__ = ["STYLES", "Side", "render", "render_equation"]

NO_NAMES: Mapping[str, str] = {}
NO_SIZES: Sizes = {}

Sides = tuple[Side, Side]
"""The numerator and the denominator of a Jacobian in vec form."""

Formula = tuple[Tree, Indices, Sequence[Definition]]
"""The right side of an equation, the indices of its left side, and the definitions it uses."""


def render(
    node: Node,
    style: str,
    names: Mapping[str, str] = NO_NAMES,
    sizes: Sizes = NO_SIZES,
    declared: frozenset[str] = frozenset(),
    sides: Sides | None = None,
) -> str:
    """Write the formula of `node` on one line.

    names: by a leaf's name, the name to show; for a cotangent or tangent, the name that gets the
    accent ({"cotangent": "Y", "tangent": "X"}). NumPy texts keep the names of leaves.
    sizes: by a dimension's name, its reading in NumPy texts (n: X.shape[0]).
    declared: names of inputs and sizes, from which definitions and signs are to differ.
    sides: of a Jacobian with more than two axes that is written as a matrix.
    Raises ValueError for an unknown style, UnsupportedError for a function without a spelling,
    NoMatrixNotation if the vec form that `sides` asks for does not exist.
    """
    if style not in STYLES:
        raise ValueError(f"unknown style {style!r}; expected one of {', '.join(STYLES)}")
    printer = STYLES[style].printer
    if isinstance(printer, MathPrinter):
        formula = _formula(node, names, style, declared, sides)
        (_, text), *definitions = _equations(("", ATOM), formula, printer, declared)
        return printer.where(text, definitions) if definitions else text
    numpy = NumPy(sizes)
    if sides:
        return _numpy(VecArrays(sides, node, numpy, declared), numpy)
    return _numpy(Arrays(node, numpy, declared), numpy)


def render_equation(
    left: Text,
    node: Node,
    style: str,
    names: Mapping[str, str] = NO_NAMES,
    declared: frozenset[str] = frozenset(),
    sides: Sides | None = None,
    on_one_line: bool = False,
) -> str:
    """Write `left` = the formula of `node`, with a line for each definition; see `render`.

    left: the name of the result, in the same style, with its precedence. Indices of the formula
    are added to it: "J" becomes "J[i,j,k]". style: any but numpy and vec-numpy. on_one_line: with
    the definitions.
    """
    printer = math_printers()[style]
    formula = _formula(node, names, style, declared, sides)
    equations = _equations(left, formula, printer, declared)
    return printer.on_one_line(equations) if on_one_line else printer.equations(equations)


def _equations(
    left: Text, formula: Formula, printer: MathPrinter, declared: frozenset[str]
) -> list[tuple[str, str]]:
    """Write the left and right sides of the equation, and of the definitions that it uses."""
    tree, indices, definitions = formula
    names = declared.union(tree.names, *(definition.names for definition in definitions))
    printer = printer.beside(names)
    equation = printer.left_side(left, indices), printer.text(tree)
    return [equation, *definition_texts(printer, tree, definitions)]


def _formula(
    node: Node,
    names: Mapping[str, str],
    style: str,
    declared: frozenset[str],
    sides: Sides | None,
) -> Formula:
    if sides:
        return _built(VecNotation(sides, node, names, declared=declared))
    return formula(node, tuple(names.items()), STYLES[style].by_index, declared)


@lru_cache(maxsize=1024)
def formula(
    node: Node,
    names: tuple[tuple[str, str], ...],
    by_index: bool,
    declared: frozenset[str] = frozenset(),
) -> Formula:
    """Build the formula of a node for reading. It is cached since the styles, and several places
    of a module, show it.

    Definitions of more than two axes are multiplied out if the result has entries of matrices
    only, without sums over these, and is shorter or removes such definitions.
    """
    plain = _built(Notation(node, dict(names), by_index, declared=declared))
    if node.ndim < 3:
        return plain
    try:
        products = _built(Notation(multiplied_out(node), dict(names), by_index, declared=declared))
    except NoMatrixNotation:
        return plain
    if _has_large_definitions(products) or any(tree.counts[Over] for tree in _trees(products)):
        return plain
    is_better = _has_large_definitions(plain) or _length(products) < _length(plain)
    return products if is_better else plain


def _has_large_definitions(formula: Formula) -> bool:
    """Tell whether a definition has more than two axes."""
    return any(definition.rank > 2 for definition in formula[2])


def _trees(formula: Formula) -> list[Tree]:
    return [formula[0], *(definition.tree for definition in formula[2])]


def _length(formula: Formula) -> int:
    return sum(map(length, _trees(formula)))


def _built(builder: Notation) -> Formula:
    tree, indices = builder.result()
    return tree, indices, builder.definitions


def _numpy(builder: Builder, printer: NumPy) -> str:
    """Write one expression; definitions are assignment expressions in a tuple before it."""
    tree, _ = builder.result()
    text = printer.real(tree) if isinstance(tree, Number) else printer.text(tree)
    assignments = [
        f"{definition.name.python} := {printer.text(definition.tree)}"
        for definition in builder.definitions
    ]
    return f"({', '.join([*assignments, text])})[-1]" if assignments else text
