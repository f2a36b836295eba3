"""Sums, with the terms in the order of writing."""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from derivatrix.compiler.formulas.algebra import entrywise, order, parts, reductions
from derivatrix.compiler.formulas.tree import Add, Diag, Number, Scale, Tree, Zeros
from derivatrix.compiler.ir.dimensions import Shape


def add(terms: Sequence[Tree], rank: int, shape: Shape = ()) -> Tree:
    """The sum of terms of this rank or scalars; no terms: zeros of `shape`."""
    flat: list[Tree] = []
    for term in terms:
        flat += term.terms if isinstance(term, Add) else (term,)
    flat = [t for t in flat if not isinstance(t, Zeros) and t != Number(sympy.S.Zero)]
    if not flat:
        return Zeros(shape) if shape else Number(sympy.S.Zero)
    if not any(term.rank for term in flat) and rank:
        return entrywise.spread(add(flat, 0), (), shape) if shape else add(flat, 0)
    return entrywise.entrywise(_joined, flat, rank)


def _joined(terms: Sequence[Tree], rank: int) -> Tree:
    """Diagonal matrices as one, and parts as blocks; a positive term comes first."""
    if len(terms) > 1:
        terms = parts.blocks(_diagonals(terms))
    if len(terms) == 1:
        return terms[0]
    ordered = sorted(terms, key=order.term_order)
    first = next((term for term in ordered if not order.is_negative(term)), ordered[0])
    ordered.remove(first)
    return Add(rank, (first, *ordered))


def _diagonals(terms: Sequence[Tree]) -> list[Tree]:
    found = [term for term in terms if _is_diagonal(term)]
    if len(found) < 2:
        return list(terms)
    one = reductions.diag(add([reductions.diagonal(term) for term in found], 1))
    return [*(term for term in terms if not _is_diagonal(term)), one]


def _is_diagonal(term: Tree) -> bool:
    return isinstance(term, Diag) or (isinstance(term, Scale) and isinstance(term.body, Diag))
