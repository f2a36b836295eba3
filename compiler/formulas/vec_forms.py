"""Labelled products as matrices between vectorised arrays, as products of several where needed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from derivatrix.compiler.formulas import algebra
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.build import Item
from derivatrix.compiler.formulas.contract import Graph, Sizes, reduce_graph
from derivatrix.compiler.formulas.indexing import NoMatrixNotation
from derivatrix.compiler.formulas.kronecker import (
    Form,
    direct_form,
    kronecker,
    vec_of,
)
from derivatrix.compiler.formulas.tree import Tree
from derivatrix.compiler.ir.nodes import Labels, labels_of
from derivatrix.compiler.ir.product import components


def vec_form(items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes) -> Form:
    """Write the product of items, summed over labels that are on neither side, as a matrix.

    rows, columns: the labels of the axes of the result and of the argument, a matrix or vector; a
    label on both sides links them as an identity matrix does. Raises NoMatrixNotation where there
    is no such form.
    """
    if len(set(rows)) < len(rows):
        form = vec_form(items, rows[:1], columns, sizes)
        return Form(_product(kinds.Diagonals(sizes[rows[0]]), form.tree), form.crossed)
    if len(set(columns)) < len(columns):
        form = vec_form(items, rows, columns[:1], sizes)
        return Form(_product(form.tree, kinds.Transpose(kinds.Diagonals(sizes[columns[0]]))))
    for rule in (_kronecker_form, _reshaped_form, _solution_form):
        special_form = rule(items, rows, columns, sizes)
        if special_form is not None:
            return special_form
    graph = reduce_graph(items, tuple(dict.fromkeys((*rows, *columns))), sizes)
    if not graph.summed() and all(len(labels) < 3 for _, labels in graph.items):
        direct = direct_form(graph.items, rows, columns, sizes)
        direct = direct or _diagonal_form(graph.items, rows, columns, sizes)
        if direct is not None:
            return direct.scaled(graph.scalars)
    return _two_step_form(graph, rows, columns, sizes).scaled(graph.scalars)


def _product(left: Tree, right: Tree) -> Tree:
    """Multiply two forms; Ψ 𝟏 is vec I."""
    if isinstance(left, kinds.Diagonals) and isinstance(right, kinds.Matmul):
        ones, *factors = right.factors
        if isinstance(ones, kinds.Ones):
            return algebra.matmul(kinds.Vectorised(kinds.Identity(left.size), False), *factors)
    if isinstance(right, kinds.Transpose) and isinstance(right.body, kinds.Diagonals):
        return _transpose(_product(right.body, _transpose(left)))
    return algebra.matmul(left, right)


def _transpose(tree: Tree) -> Tree:
    return algebra.transpose(tree) if tree.rank == 2 else kinds.Transpose(tree)


def _reshaped_form(
    items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes
) -> Form | None:
    """Write the form for a side that is a vector of the entries of a matrix by that matrix."""
    for item in items:
        tree, labels = item
        other_items = [candidate for candidate in items if candidate is not item]
        if not isinstance(tree, kinds.Reshaped) or labels[0] in labels_of(other_items):
            continue
        if rows == labels[:1] and rows != columns:
            return _merged_form(tree, labels, other_items, columns, sizes)
        if columns == labels[:1] and rows != columns:
            form = _merged_form(tree, labels, other_items, rows, sizes)
            matrix = _transpose(form.tree)
            if not form.crossed:
                return Form(matrix)
            commutation = kinds.Commutation(sizes[rows[1]], sizes[rows[0]])
            return Form(algebra.matmul(commutation, matrix))
    return None


def _merged_form(
    tree: kinds.Reshaped, labels: Labels, items: Sequence[Item], columns: Labels, sizes: Sizes
) -> Form:
    """Write the form of a vector that holds the entries of a matrix row by row."""
    _, outer, inner = labels
    if not tree.packed:
        return vec_form(items, (inner, outer), columns, sizes)
    form = vec_form(items, (outer, inner), columns, sizes)
    return Form(_product(kinds.Elimination(tree.outer), form.tree), form.crossed)


def _kronecker_form(
    items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes
) -> Form | None:
    """Write the form for A[a,b] B[c,d] as entry [(a,c), (b,d)] of A ⊗ B, where A or B depends on
    the argument, by vec(A ⊗ B) = (I ⊗ K ⊗ I) (vec A ⊗ vec B)."""
    merges = {item[1][0]: item for item in items if isinstance(item[0], kinds.Reshaped)}
    if len(rows) < 2 or not all(label in merges and label not in columns for label in rows):
        return None
    (_, (_, a, c)), (_, (_, b, d)) = (merges[label] for label in rows)
    factors = [item for item in items if item not in [merges[label] for label in rows]]
    for varying, constant in (((a, b), (c, d)), ((c, d), (a, b))):
        parts = _split_items(factors, {*varying, *columns}, set(constant))
        if parts is None or set(constant) & set(columns):
            continue
        form = vec_form(parts[0], varying, columns, sizes)
        vector = vec_of(parts[1], constant, sizes)
        vecs = (form.tree, vector) if varying == (a, b) else (vector, form.tree)
        permutation = kronecker(kinds.Identity(sizes[b]), kinds.Commutation(sizes[d], sizes[a]))
        permutation = kronecker(permutation, kinds.Identity(sizes[c]))
        return Form(algebra.matmul(permutation, kronecker(*vecs)), form.crossed)
    return None


def _solution_form(
    items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes
) -> Form | None:
    """Write the form with a matrix between vectorised arrays among the items, which solves a
    matrix equation: it stands between the forms before and after it."""
    solution = next((item for item in items if len(item[1]) == 4), None)
    if solution is None:
        return None
    tree, labels = solution
    other_items = [item for item in items if item is not solution]
    for is_transposed in (False, True):
        before, after = labels[:2], labels[2:]
        if is_transposed:
            before, after = after, before
        parts = _split_items(other_items, {*rows, *before}, {*columns, *after})
        if parts is None:
            continue
        left = vec_form(parts[0], rows, before, sizes)
        right = vec_form(parts[1], after, columns, sizes)
        middle = [algebra.transpose(tree) if is_transposed else tree]
        if left.crossed:
            middle.insert(0, kinds.Commutation(*(sizes[label] for label in before)))
        return Form(algebra.matmul(left.tree, *middle, right.tree), right.crossed)
    raise NoMatrixNotation


def _split_items(
    items: Sequence[Item], left_labels: set[int], right_labels: set[int]
) -> tuple[list[Item], list[Item]] | None:
    """Split the items into those linked to labels on the left and on the right; None if some are
    linked to both."""
    parts: tuple[list[Item], list[Item]] = ([], [])
    for group in components(items, left_labels | right_labels):
        labels = set(labels_of(group)) & (left_labels | right_labels)
        if not (labels <= left_labels or labels <= right_labels):
            return None
        parts[not labels <= left_labels].extend(group)
    return parts


def _diagonal_form(
    items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes
) -> Form | None:
    """Write the form for two axes of one side that are both linked with the only axis of the other
    side: that axis gets two labels, and Ψ selects the entries where both are equal."""
    if len(rows) == 1 and len(columns) == 2:
        transposed = _diagonal_form(items, columns, rows, sizes)
        return None if transposed is None else Form(_transpose(transposed.tree))
    if len(columns) != 1 or len(rows) != 2 or columns[0] in rows:
        return None
    (column,) = columns
    twin = max(sizes) + 1
    doubled: list[Item] = [
        (tree, tuple(twin if i == column and rows[1] in labels else i for i in labels))
        for tree, labels in items
    ]
    form = direct_form(doubled, rows, (column, twin), {**sizes, twin: sizes[column]})
    return form and Form(algebra.matmul(form.tree, kinds.Diagonals(sizes[column])))


def _two_step_form(graph: Graph, rows: Labels, columns: Labels, sizes: Sizes) -> Form:
    """Write a product of two forms, between which are the axes that are summed or on both sides,
    and further ones if needed."""
    required = dict.fromkeys((*(label for label in rows if label in columns), *graph.summed()))
    optional = [label for label in dict.fromkeys((*rows, *columns)) if label not in required]
    for count in range(3 - len(required)):
        for labels in itertools.combinations(optional, count):
            form = _form_through(graph.items, rows, (*required, *labels), columns, sizes)
            if form is not None:
                return form
    raise NoMatrixNotation


def _form_through(
    items: Sequence[Item], rows: Labels, between: Labels, columns: Labels, sizes: Sizes
) -> Form | None:
    """Write the product of the forms before and after the axes `between`; None if impossible."""
    left_items = [item for item in items if {*rows, *between}.issuperset(item[1])]
    right_items = [item for item in items if item not in left_items]
    is_split = {*columns, *between}.issuperset(labels_of(right_items))
    if not (between and left_items and right_items and is_split):
        return None
    try:
        left = vec_form(left_items, rows, between, sizes)
        if left.crossed:
            between = between[::-1]
            left = vec_form(left_items, rows, between, sizes)
        right = vec_form(right_items, between, columns, sizes)
    except NoMatrixNotation:
        return None
    return Form(_product(left.tree, right.tree), right.crossed)
