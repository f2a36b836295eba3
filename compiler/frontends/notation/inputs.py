"""Declarations of a text's inputs: sizes, then optionally a structure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import sympy

from derivatrix.compiler.frontends import arrays as library
from derivatrix.compiler.frontends.notation import functions
from derivatrix.compiler.frontends.notation.meaning import Meaning
from derivatrix.compiler.frontends.notation.syntax import Parser, Tree
from derivatrix.compiler.frontends.notation.tokens import Source, Span
from derivatrix.compiler.ir import dimensions
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.dimensions import Dimension
from derivatrix.compiler.ir.identifiers import require_identifier
from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import DerivatrixError, NotationError

MAX_POINTS = 1000
"""Most values of the sizes at which a polynomial is checked for being an integer."""


def declare(dims: Mapping[str, str]) -> tuple[dict[str, Array], dict[str, sympy.Expr]]:
    """Return the inputs, and the sizes in their shapes, by name. Raises NotationError for a name
    that is predefined, and for invalid sizes."""
    inputs = {name: declare_input(name, text) for name, text in dims.items()}
    sizes: dict[str, sympy.Expr] = {}
    for name, array in inputs.items():
        for symbol in sorted(set().union(*(s.free_symbols for s in array.node.shape)), key=str):
            sizes[symbol.name] = symbol
            if symbol.name in inputs:
                raise NotationError(
                    f"{symbol} names both an input and a size of {name}; rename one of them"
                )
    return inputs, sizes


def declare_input(name: str, text: str) -> Array:
    """Declare an input by a text such as "n n spd" or "n+p"; "" is a scalar."""
    try:
        require_identifier(name, "an input")
    except DerivatrixError as error:
        raise NotationError(str(error)) from error
    if name in functions.names():
        raise NotationError(f"{shown(name)} is a function of the notation; rename the input")
    if not isinstance(text, str):
        raise NotationError(
            f'{name}: the sizes are a text such as {name}="n n", not {shown(text)}; "" is a scalar'
        )
    source = Source(text, f"sizes of {name}: ")
    parser = Parser(source)
    structure = "general"
    if parser.tokens[-2:-1] and parser.tokens[-2].text in ir.STRUCTURES:
        structure = parser.tokens.pop(-2).text  # the last word: behind it is the end of the text
    shape = []
    while parser.token.kind != "end":
        shape.append(_size(source, parser.expression()))
        parser.accept(",")
    try:
        return library.tensor(name, *shape, structure=structure)
    except DerivatrixError as error:
        raise source.error(str(error).removeprefix(f"{name}: "), Span(0, len(text))) from error


def _size(source: Source, tree: Tree) -> Dimension:
    symbols = {name: dimensions.symbol(name) for name in _names(source, tree)}
    value = Meaning(source, {}, symbols).read(tree).literal
    if value is None or not (value.is_polynomial() and _is_integer(sympy.expand(value))):
        raise source.error("a size is a whole number, for all of the sizes in it", tree.span)
    return dimensions.dimension(value, "a size")


def _is_integer(size: sympy.Expr) -> bool:
    """Check that a polynomial in sizes is an integer for all sizes, and no negative number.

    A polynomial with fractions as coefficients is an integer everywhere if it is one at degree + 1
    consecutive values of each symbol."""
    if size.is_number:
        return bool(size.is_Integer and size >= 0)
    terms = sympy.Add.make_args(size)
    fractional = sympy.Add(*(term for term in terms if not term.as_coeff_Mul()[0].is_Integer))
    symbols = sorted(fractional.free_symbols, key=str)
    ranges = [range(1, sympy.degree(fractional, symbol) + 2) for symbol in symbols]
    if math.prod(map(len, ranges)) > MAX_POINTS:
        return False
    points = itertools.product(*ranges)
    values = (
        fractional.xreplace(dict(zip(symbols, map(sympy.Integer, p), strict=True))) for p in points
    )
    return all(value.is_Integer for value in values)


def _names(source: Source, tree: Tree) -> list[str]:
    """List the names in the expression of a size. Raises NotationError for one that cannot name a
    size."""
    names = []
    for token in Parser(source).tokens:
        if token.kind == "name" and tree.span.start <= token.span.start < tree.span.stop:
            if token.text in ir.STRUCTURES:
                raise source.error(f"{token.text} is a structure, which comes last", token.span)
            if token.text in functions.names():
                raise source.error(
                    f"{token.shown} is a function of the notation; rename the size", token.span
                )
            try:
                dimensions.dims(token.text)
            except DerivatrixError as error:
                raise source.error(f"{token.shown} cannot name a size", token.span) from error
            names.append(token.text)
    return names
