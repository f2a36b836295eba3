"""The Python expressions that make operators in generated modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.python_text import index, tuple_text
from derivatrix.compiler.structured import Operator, Structured, Term
from derivatrix.compiler.structured.index_maps import IndexMap

Rename = Callable[[sympy.Expr], sympy.Expr]
"""Replaces sizes by their names at the place of the expression."""


def operator_lines(
    name: str, operator: Operator, structured: Structured, rename: Rename
) -> tuple[str, ...]:
    """Write the expression, an argument a line. At its place, `_parts` is the tuple of arrays and
    `_dtype` their type."""
    masks = list(dict.fromkeys(node for term in operator.terms for node, _ in term.masks))
    numbers = {node: number for number, node in enumerate((*structured.parts, *masks))}
    texts = _Texts(rename, numbers)
    shapes = (texts.sizes(operator.output_shape), texts.sizes(operator.input_shape))
    triangles = tuple_text(
        f"_tri({texts.size(node.shape[0])}, {texts.size(node.shape[1])}, {-node.offset}, _dtype)"
        for node in masks
        if isinstance(node, ir.Triangle)
    )
    return (
        f"_Operator({name!r}, {operator.structure!r},",
        f"    {tuple_text(shapes)}, {operator.batched!r}, {operator.projected!r}, (",
        *(f"        {texts.term(term)}," for term in operator.terms),
        f"    ), _parts, {triangles}, _dtype)",
    )


class _Texts:
    """Writes the fields of terms."""

    def __init__(self, rename: Rename, numbers: dict[ir.Node, int]) -> None:
        self._rename = rename
        self._numbers = numbers

    def size(self, size: sympy.Expr) -> str:
        return index(self._rename(size))

    def sizes(self, shape: Sequence[sympy.Expr]) -> str:
        return tuple_text(self.size(size) for size in shape)

    def term(self, term: Term) -> str:
        """Write (coefficient, sizes, outputs, inputs, factors); at run time the term is left out
        if its adjugate factors are zero, as other terms replace it."""
        factors = tuple((self._numbers[node], labels) for node, labels in term.factors)
        sides = (self._side(term.outputs), self._side(term.inputs))
        texts = (self._number(term.coefficient), self.sizes(term.sizes), *sides, repr(factors))
        text = tuple_text(texts)
        for part in term.adjugate_factors.values():
            return f"*(({text},) if _nonzero(_parts[{self._numbers[part]}]) else ())"
        return text

    def _number(self, value: sympy.Expr) -> str:
        if value.is_number:
            return repr(float(value))
        numerator, denominator = self._rename(sympy.N(value, 17)).as_numer_denom()
        if not denominator.free_symbols:
            return sympy.pycode(numerator / denominator)
        return f"_ratio({sympy.pycode(numerator)}, {sympy.pycode(denominator)})"

    def _side(self, side: Sequence[Sequence[IndexMap]]) -> str:
        return tuple_text(tuple_text(map(self._index_map, index_maps)) for index_maps in side)

    def _index_map(self, index_map: IndexMap) -> str:
        """Write an index map: a label, (offset, steps) or (table, label)."""
        if index_map.plain is not None:
            return str(index_map.plain)
        if index_map.table is None:
            steps = (f"({label}, {self.size(step)})" for label, step in index_map.steps)
            return f"({self.size(index_map.offset)}, {tuple_text(steps)})"
        ((label, _),) = index_map.steps
        if index_map.table[-1] in ("rows", "columns"):
            coordinate = ("rows", "columns").index(str(index_map.table[-1]))
            return f"(_packed({self.size(index_map.table[0])})[{coordinate}], {label})"
        return f"({index_map.table!r}, {label})"
