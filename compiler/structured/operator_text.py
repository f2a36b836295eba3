"""The Python expressions that make operators in generated modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy
from sympy.printing.pycode import PythonCodePrinter

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.python_text import index, tuple_text
from derivatrix.compiler.structured import Operator, Structured, Term
from derivatrix.compiler.structured.index_maps import IndexMap

HELPERS = {
    **dict.fromkeys(("_Operator", "_nonzero", "_packed", "_ratio", "_tri"), "common.linear_map"),
    "_LoopOperator": "common.loop_operator",
}
"""Names that the expressions read, with the files of the support that define them."""
Rename = Callable[[sympy.Expr], sympy.Expr]
"""Replaces sizes by their names at the place of the expression."""


def operator_lines(
    name: str, operator: Operator, structured: Structured, rename: Rename, names: set[str]
) -> tuple[str, ...]:
    """Write the expression, an argument a line, and add the names that it reads to `names`. At its
    place, `_parts` is the tuple of arrays and `_dtype` their type."""
    if operator.runs_loops:
        return _loop_operator_lines(name, operator, _Texts(rename, {}, names))
    masks = list(dict.fromkeys(node for term in operator.terms for node, _ in term.masks))
    numbers = {node: number for number, node in enumerate((*structured.parts, *masks))}
    texts = _Texts(rename, numbers, names)
    shapes = (texts.sizes(operator.output_shape), texts.sizes(operator.input_shape))
    triangles = tuple_text(
        f"{texts.helper('_tri')}({', '.join(map(texts.size, node.shape))}, {-node.offset}, _dtype)"
        for node in masks
        if isinstance(node, ir.Triangle)
    )
    return (
        f"{texts.helper('_Operator')}({name!r}, {operator.structure!r},",
        f"    {tuple_text(shapes)}, {operator.batched!r}, {operator.projected!r}, (",
        *(f"        {texts.term(term)}," for term in operator.terms),
        f"    ), _parts, {triangles}, _dtype)",
    )


def _loop_operator_lines(name: str, operator: Operator, texts: _Texts) -> tuple[str, ...]:
    """Write the expression of an operator that runs loops. At its place, `_derivatives` has the
    functions that multiply by it."""
    shapes = tuple_text((texts.sizes(operator.output_shape), texts.sizes(operator.input_shape)))
    flags = f"{operator.batched!r}, {operator.projected!r}, {operator.block!r}"
    return (
        f"{texts.helper('_LoopOperator')}({name!r}, {operator.structure!r},",
        f"    {shapes}, {flags}, {texts.helper('_derivatives')}, _dtype)",
    )


class _Texts:
    """Writes the fields of terms. names: those that the texts read."""

    def __init__(self, rename: Rename, numbers: dict[ir.Node, int], names: set[str]) -> None:
        self._rename = rename
        self._numbers = numbers
        self._names = names

    def helper(self, name: str) -> str:
        """Print the name of a function of the support."""
        self._names.add(name)
        return name

    def size(self, size: sympy.Expr) -> str:
        local = self._rename(size)
        self._names.update(map(str, local.free_symbols))
        return index(local)

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
            present = f"{self.helper('_nonzero')}(_parts[{self._numbers[part]}])"
            return f"*(({text},) if {present} else ())"
        return text

    def _number(self, value: sympy.Expr) -> str:
        if value.is_number:
            return repr(float(value))
        numerator, denominator = self._rename(sympy.N(value, 17)).as_numer_denom()
        printer = PythonCodePrinter()
        self._names.update(map(str, numerator.free_symbols | denominator.free_symbols))
        if denominator.free_symbols:
            terms = f"{printer.doprint(numerator)}, {printer.doprint(denominator)}"
            text = f"{self.helper('_ratio')}({terms})"
        else:
            text = printer.doprint(numerator / denominator)
        self._names.update(printer.module_imports)
        return text

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
            pair = f"{self.helper('_packed')}({self.size(index_map.table[0])})"
            return f"({pair}[{coordinate}], {label})"
        return f"({index_map.table!r}, {label})"
