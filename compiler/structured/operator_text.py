"""An operator as the Python expression that makes it in a generated module."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.python_text import index, tuple_text
from derivatrix.compiler.structured import Operator, Structured, Term
from derivatrix.compiler.structured.index_maps import IndexMap

Rename = Callable[[sympy.Expr], sympy.Expr]
"""Sizes as the names that they have where the expression stands."""


def operator_lines(
    name: str, operator: Operator, structured: Structured, rename: Rename
) -> tuple[str, ...]:
    """The expression, a line each for the arguments. It stands where `_parts` is the tuple of
    arrays and `_dtype` their type."""
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
    """The parts of a term as texts."""

    def __init__(self, rename: Rename, numbers: dict[ir.Node, int]) -> None:
        self._rename = rename
        self._numbers = numbers

    def size(self, size: sympy.Expr) -> str:
        return index(self._rename(size))

    def sizes(self, shape: Sequence[sympy.Expr]) -> str:
        return tuple_text(self.size(size) for size in shape)

    def term(self, term: Term) -> str:
        """(coefficient, sizes, outputs, inputs, factors), left out where a part says that another
        term stands for it."""
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
        above, below = self._rename(sympy.N(value, 17)).as_numer_denom()
        if not below.free_symbols:
            return sympy.pycode(above / below)
        return f"_ratio({sympy.pycode(above)}, {sympy.pycode(below)})"

    def _side(self, patterns: Sequence[Sequence[IndexMap]]) -> str:
        return tuple_text(tuple_text(map(self._index_map, pattern)) for pattern in patterns)

    def _index_map(self, index_map: IndexMap) -> str:
        """An index map: a label, (offset, steps) or (table, label)."""
        if index_map.plain is not None:
            return str(index_map.plain)
        if index_map.table is None:
            steps = (f"({label}, {self.size(step)})" for label, step in index_map.steps)
            return f"({self.size(index_map.offset)}, {tuple_text(steps)})"
        ((label, _),) = index_map.steps
        if index_map.table[-1] in ("rows", "columns"):
            which = ("rows", "columns").index(str(index_map.table[-1]))
            return f"(_packed({self.size(index_map.table[0])})[{which}], {label})"
        return f"({index_map.table!r}, {label})"
