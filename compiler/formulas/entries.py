"""Matrices and vectors that are given entry by entry, written so."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np

from derivatrix.compiler.formulas import algebra
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.kronecker import split
from derivatrix.compiler.formulas.rewrite import mapped
from derivatrix.compiler.formulas.tree import Tree, is_row

MAX_ENTRIES = 16


def by_entries(tree: Tree) -> Tree:
    """The same with sums of multiples of e_i e_jᵀ, or of e_i, as arrays of their entries, where
    these are few: [1, s; 0, 1] for e₀ e₀ᵀ + e₁ e₁ᵀ + s e₀ e₁ᵀ."""
    known: dict[Tree, Tree] = {}

    def new(part: Tree) -> Tree:
        if part not in known:
            changed = mapped(part, new)
            known[part] = _sum(changed) if isinstance(changed, kinds.Add) else changed
        return known[part]

    return new(tree)


def _sum(tree: kinds.Add) -> Tree:
    entries: dict[tuple[int, ...], list[Tree]] = defaultdict(list)
    shapes: set[tuple[int, ...]] = set()
    others: list[Tree] = []
    for term in tree.terms:
        factor, body = split(term)
        units = _units(body)
        if units and all(own.size.is_Integer and own.position.is_Integer for own in units):
            entries[tuple(int(own.position) for own in units)].append(factor)
            shapes.add(tuple(int(own.size) for own in units))
        else:
            others.append(term)
    count = len(tree.terms) - len(others)
    if count < 2 or len(shapes) > 1 or max(map(math.prod, shapes)) > MAX_ENTRIES:
        return tree
    (shape,) = shapes
    summed = [algebra.add(entries[place]) for place in np.ndindex(shape)]
    columns = len(summed) // shape[0]
    rows = tuple(tuple(summed[i : i + columns]) for i in range(0, len(summed), columns))
    array = kinds.Entries(tree.axes, rows)
    return kinds.Add(tree.axes, (*others, array)) if others else array


def _units(body: Tree) -> tuple[kinds.Unit, ...]:
    """The unit vectors whose outer product a tree is, or the one that it is."""
    match body:
        case kinds.Unit():
            return (body,)
        case kinds.Matmul(factors=(kinds.Unit() as left, right)) if is_row(right):
            return (left, right.body) if isinstance(right.body, kinds.Unit) else ()
    return ()
