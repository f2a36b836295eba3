"""The structure descriptor of an operator, such as "A ⊗ I + I ⊗ Aᵀ" or "diagonal + rank 1".

Numbers and signs are left out. K is the map that transposes a matrix, `sym` the sum over the
transposes of a side.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.plan.nominal_sizes import product
from derivatrix.compiler.structured.expand import volume
from derivatrix.compiler.structured.index_maps import IndexMap
from derivatrix.compiler.structured.operator_terms import Term

Sides = tuple[tuple[IndexMap, ...], tuple[IndexMap, ...]]
"""The index maps of the axes of an output, and of an input."""

FIRST = ("diagonal", "identity", "permutation")
"""What a structure is named after before its other terms."""


def descriptor(terms: Sequence[Term], batched: bool) -> str:
    """What the sum of the terms is called; `batched`: they are of one sample."""
    if not terms:
        return "zero"
    letters, alike = _Letters(), _Alike()
    ordered = sorted(terms, key=lambda term: _term(term, batched, alike))
    found = list(dict.fromkeys(_term(term, batched, letters) for term in ordered))
    found.sort(key=lambda text: text.startswith("rank") - text.endswith(FIRST))
    return " + ".join(found) + (" for each sample" if batched else "")


class _Letters:
    """A, B, ... for the parts of an operator."""

    def __init__(self) -> None:
        self._known: dict[ir.Node, str] = {}

    def of(self, node: ir.Node) -> str:
        number = len(self._known)
        return self._known.setdefault(node, chr(ord("A") + number) if number < 8 else f"M{number}")


class _Alike(_Letters):
    """One letter for all parts, so that the order of texts does not depend on which comes first."""

    def of(self, node: ir.Node) -> str:
        return "A"


def _term(term: Term, batched: bool, letters: _Letters) -> str:
    text = _pattern(term, batched, letters)
    return f"sym({text})" if len(term.outputs) + len(term.inputs) > 2 else text


def _pattern(term: Term, batched: bool, letters: _Letters) -> str:
    """The shortest text: a sum over transposes is that of any of them."""
    alike = _Alike()

    def length(sides: Sides) -> tuple[int, str]:
        text = _of_sides(term, sides, batched, alike)
        return len(text), text

    sides = min(itertools.product(term.outputs, term.inputs), key=length)
    return _of_sides(term, sides, batched, letters)


def _of_sides(term: Term, sides: Sides, batched: bool, letters: _Letters) -> str:
    """The text of a term with these index maps."""
    rows, columns = (_plain(side[batched:]) for side in sides)
    if rows is None or columns is None:
        return "sparse"
    fixed = {sides[0][0].labels[0]} if batched else set()
    parts = [(node, tuple(x for x in labels if x not in fixed)) for node, labels in term.factors]
    parts = [(node, labels) for node, labels in parts if labels]
    touched = set(ir.labels_of(parts))
    if set(rows) == set(columns) and touched <= set(rows):
        return _diagonal(term, rows, columns)
    if not set(rows) & set(columns) and not _linked(parts, rows, columns):
        inner = touched - {*rows, *columns}
        sizes = [[term.sizes[label] for label in side] for side in (inner, rows, columns)]
        low = volume(sizes[0]) <= min(map(volume, sizes[1:]))
        return f"rank {product(tuple(sizes[0]))}" if low else "factored"
    kronecker = _kronecker(parts, rows, columns, letters)
    if kronecker:
        return kronecker
    if set(rows) & set(columns):
        return "block diagonal"
    whole = any(set(labels) >= {*rows, *columns} for _, labels in parts)
    return "dense" if whole else "factored"


def _plain(index_maps: Sequence[IndexMap]) -> list[int] | None:
    """The labels of the axes, where each is one of its own."""
    found = [index_map.plain for index_map in index_maps]
    labels = [label for label in found if label is not None]
    return labels if len(set(labels)) == len(found) else None


def _diagonal(term: Term, rows: list[int], columns: list[int]) -> str:
    unit = not term.factors and term.coefficient == 1
    if rows == columns:
        return "identity" if unit else "diagonal"
    return "permutation" if unit else "permuted diagonal"


def _linked(parts: Sequence[ir.Factor], rows: list[int], columns: list[int]) -> bool:
    """Whether some array has labels of both sides."""
    return any(set(labels) & set(rows) and set(labels) & set(columns) for _, labels in parts)


def _kronecker(
    parts: Sequence[ir.Factor], rows: list[int], columns: list[int], letters: _Letters
) -> str:
    """A product with a factor for each axis of the output; "" where it is none."""
    if len(rows) != len(columns) or len(rows) < 2:
        return ""
    factors, partners = [], []
    for row in rows:
        own = [(node, labels) for node, labels in parts if row in labels]
        if row in columns:
            if any(len(labels) > 1 for _, labels in own):
                return ""
            factors.append("D" if own else "I")
            partners.append(row)
        elif len(own) == 1 and len(own[0][1]) == 2 and set(own[0][1]) <= {row, *columns}:
            ((node, labels),) = own
            factors.append(letters.of(node) + ("ᵀ" if labels[1] == row else ""))
            partners.append(labels[0] if labels[1] == row else labels[1])
        else:
            return ""
    others = [labels for _, labels in parts if not set(labels) & set(rows)]
    if others or sorted(partners) != sorted(columns):
        return ""
    text = " ⊗ ".join(factors)
    return text if partners == columns else f"({text}) K"
