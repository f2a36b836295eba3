"""Descriptors of the structure of operators, such as "A ⊗ I + I ⊗ Aᵀ" or "diagonal + rank 1".

Numbers and signs are left out. K transposes a matrix; `sym` is the sum over the transposes of the
result or of the argument.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.plan.nominal_sizes import product
from derivatrix.compiler.structured.expand import volume
from derivatrix.compiler.structured.index_maps import IndexMap
from derivatrix.compiler.structured.operator_terms import Term

Sides = tuple[tuple[IndexMap, ...], tuple[IndexMap, ...]]
"""The index maps of the axes of an output, and of an input."""

LEADING_WORDS = ("diagonal", "identity", "permutation")
"""Ends of the descriptors of terms that are named first."""

Letter = Callable[[ir.Node], str]
"""Gives an array its letter in a descriptor."""


def descriptor(terms: Sequence[Term], batched: bool) -> str:
    """Describe the sum of terms; `batched`: they are those of one sample."""
    if not terms:
        return "zero"
    letters: dict[ir.Node, str] = {}

    def letter(node: ir.Node) -> str:
        number = len(letters)
        return letters.setdefault(node, chr(ord("A") + number) if number < 8 else f"M{number}")

    ordered = sorted(terms, key=lambda term: _describe(term, batched, _same_letter))
    texts = list(dict.fromkeys(_describe(term, batched, letter) for term in ordered))
    texts.sort(key=lambda text: text.startswith("rank") - text.endswith(LEADING_WORDS))
    return " + ".join(texts) + (" for each sample" if batched else "")


def _same_letter(node: ir.Node) -> str:
    """Give all arrays one letter, so that an order by text does not depend on letters."""
    return "A"


def _describe(term: Term, batched: bool, letter: Letter) -> str:
    """Describe a term by the shortest description for any of the transposes that it sums over."""

    def length(sides: Sides) -> tuple[int, str]:
        text = _describe_sides(term, sides, batched, _same_letter)
        return len(text), text

    sides = min(itertools.product(term.outputs, term.inputs), key=length)
    text = _describe_sides(term, sides, batched, letter)
    return f"sym({text})" if len(term.outputs) + len(term.inputs) > 2 else text


def _describe_sides(term: Term, sides: Sides, batched: bool, letter: Letter) -> str:
    """Describe a term with these index maps."""
    rows, columns = (_axis_labels(side[batched:]) for side in sides)
    if rows is None or columns is None:
        return "sparse"
    batch_labels = {sides[0][0].labels[0]} if batched else set()
    factors = [
        (node, tuple(label for label in labels if label not in batch_labels))
        for node, labels in term.factors
    ]
    factors = [(node, labels) for node, labels in factors if labels]
    factor_labels = set(ir.labels_of(factors))
    if set(rows) == set(columns) and factor_labels <= set(rows):
        is_unit = not term.factors and term.coefficient == 1
        if rows == columns:
            return "identity" if is_unit else "diagonal"
        return "permutation" if is_unit else "permuted diagonal"
    are_linked = any({*labels} & {*rows} and {*labels} & {*columns} for _, labels in factors)
    if not set(rows) & set(columns) and not are_linked:
        inner = factor_labels - {*rows, *columns}
        sizes = [[term.sizes[label] for label in side] for side in (inner, rows, columns)]
        has_low_rank = volume(sizes[0]) <= min(map(volume, sizes[1:]))
        return f"rank {product(tuple(sizes[0]))}" if has_low_rank else "factored"
    kronecker = _kronecker(factors, rows, columns, letter)
    if kronecker:
        return kronecker
    if set(rows) & set(columns):
        return "block diagonal"
    is_dense = any(set(labels) >= {*rows, *columns} for _, labels in factors)
    return "dense" if is_dense else "factored"


def _axis_labels(index_maps: Sequence[IndexMap]) -> list[int] | None:
    """Return the labels of the axes if each axis is a label of its own, else None."""
    labels = [index_map.plain for index_map in index_maps if index_map.plain is not None]
    return labels if len(set(labels)) == len(index_maps) else None


def _kronecker(
    factors: Sequence[ir.Factor], rows: list[int], columns: list[int], letter: Letter
) -> str:
    """Describe a product with one factor for each axis of the output; "" if it is none."""
    if len(rows) != len(columns) or len(rows) < 2:
        return ""
    texts, partners = [], []
    for row in rows:
        linked = [(node, labels) for node, labels in factors if row in labels]
        if row in columns:
            if any(len(labels) > 1 for _, labels in linked):
                return ""
            texts.append("D" if linked else "I")
            partners.append(row)
        elif len(linked) == 1 and len(linked[0][1]) == 2 and {*linked[0][1]} <= {row, *columns}:
            ((node, labels),) = linked
            texts.append(letter(node) + ("ᵀ" if labels[1] == row else ""))
            partners.append(labels[0] if labels[1] == row else labels[1])
        else:
            return ""
    has_other_factors = any(not set(labels) & set(rows) for _, labels in factors)
    if has_other_factors or sorted(partners) != sorted(columns):
        return ""
    text = " ⊗ ".join(texts)
    return text if partners == columns else f"({text}) K"
