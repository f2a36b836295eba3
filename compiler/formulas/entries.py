"""Small matrices and vectors written by their entries."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np

from derivatrix.compiler.formulas import algebra
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.kronecker import split_scalar
from derivatrix.compiler.formulas.rewrite import mapped
from derivatrix.compiler.formulas.tree import Tree, is_row

MAX_ENTRIES = 16
"""Most entries of an array that is written by them."""


def by_entries(tree: Tree) -> Tree:
    """Write sums of multiples of e_i e_jᵀ, or of e_i, as arrays of their entries:
    [1, s; 0, 1] for e₀ e₀ᵀ + e₁ e₁ᵀ + s e₀ e₁ᵀ."""
    changed: dict[Tree, Tree] = {}

    def change(part: Tree) -> Tree:
        if part not in changed:
            new = mapped(part, change)
            changed[part] = _sum_by_entries(new) if isinstance(new, kinds.Add) else new
        return changed[part]

    return change(tree)


def _sum_by_entries(tree: kinds.Add) -> Tree:
    entries: dict[tuple[int, ...], list[Tree]] = defaultdict(list)
    shapes: set[tuple[int, ...]] = set()
    other_terms: list[Tree] = []
    for term in tree.terms:
        scalar, body = split_scalar(term)
        units = _units(body)
        if units and all(unit.size.is_Integer and unit.position.is_Integer for unit in units):
            entries[tuple(int(unit.position) for unit in units)].append(scalar)
            shapes.add(tuple(int(unit.size) for unit in units))
        else:
            other_terms.append(term)
    count = len(tree.terms) - len(other_terms)
    if count < 2 or len(shapes) > 1 or max(map(math.prod, shapes)) > MAX_ENTRIES:
        return tree
    (shape,) = shapes
    sums = [algebra.add(entries[position]) for position in np.ndindex(shape)]
    columns = len(sums) // shape[0]
    rows = tuple(tuple(sums[i : i + columns]) for i in range(0, len(sums), columns))
    array = kinds.Entries(tree.axes, rows)
    return kinds.Add(tree.axes, (*other_terms, array)) if other_terms else array


def _units(body: Tree) -> tuple[kinds.Unit, ...]:
    """Return the factors of an outer product of unit vectors, or a single unit vector; else ()."""
    match body:
        case kinds.Unit():
            return (body,)
        case kinds.Matmul(factors=(kinds.Unit() as left, right)) if is_row(right):
            return (left, right.body) if isinstance(right.body, kinds.Unit) else ()
    return ()
