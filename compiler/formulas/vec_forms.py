"""Products with labels as matrices between vectors, in more than one step where that is needed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from derivatrix.compiler.formulas import algebra
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.build import Item
from derivatrix.compiler.formulas.contract import RULES, Graph, Sizes
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
    """The product of the items, summed over the labels that are on no side, as a matrix.

    rows, columns: the labels of the axes of a matrix or vector on either side; one on both sides
    links them as an identity matrix does. Raises NoMatrixNotation where there is no such form.
    """
    if len(set(rows)) < len(rows):
        form = vec_form(items, rows[:1], columns, sizes)
        return Form(_product(kinds.Diagonals(sizes[rows[0]]), form.tree), form.crossed)
    if len(set(columns)) < len(columns):
        form = vec_form(items, rows, columns[:1], sizes)
        return Form(_product(form.tree, kinds.Transpose(kinds.Diagonals(sizes[columns[0]]))))
    for rule in (_of_kronecker, _reshaped, _solved):
        found = rule(items, rows, columns, sizes)
        if found is not None:
            return found
    output = tuple(dict.fromkeys((*rows, *columns)))
    graph = _reduced(items, output, sizes)
    scalars = graph.scalars
    if not graph.summed() and all(len(labels) < 3 for _, labels in graph.items):
        found = direct_form(graph.items, rows, columns, sizes)
        found = found or _chosen(graph.items, rows, columns, sizes)
        if found is not None:
            return found.scaled(scalars)
    return _through(graph, rows, columns, sizes).scaled(scalars)


def _product(left: Tree, right: Tree) -> Tree:
    """The product of two forms; Ψ 𝟏 is vec I."""
    if isinstance(left, kinds.Diagonals) and isinstance(right, kinds.Matmul):
        first, *rest = right.factors
        if isinstance(first, kinds.Ones):
            return algebra.matmul(kinds.Vectorised(kinds.Identity(left.size), False), *rest)
    if isinstance(right, kinds.Transpose) and isinstance(right.body, kinds.Diagonals):
        return _transposed(_product(right.body, _transposed(left)))
    return algebra.matmul(left, right)


def _transposed(tree: Tree) -> Tree:
    return algebra.transpose(tree) if tree.rank == 2 else kinds.Transpose(tree)


def _reshaped(items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes) -> Form | None:
    """Where a side is a vector that holds the entries of a matrix: the form with that matrix."""
    for item in items:
        tree, labels = item
        others = [other for other in items if other is not item]
        if not isinstance(tree, kinds.Reshaped) or any(labels[0] in own for _, own in others):
            continue
        if rows == labels[:1] and rows != columns:
            return _merged(tree, labels, others, columns, sizes)
        if columns == labels[:1] and rows != columns:
            form = _merged(tree, labels, others, rows, sizes)
            matrix = _transposed(form.tree)
            if not form.crossed:
                return Form(matrix)
            turn = kinds.Commutation(sizes[rows[1]], sizes[rows[0]])
            return Form(algebra.matmul(turn, matrix))
    return None


def _merged(
    tree: kinds.Reshaped, labels: Labels, items: Sequence[Item], columns: Labels, sizes: Sizes
) -> Form:
    """The form of a vector that holds the entries of a matrix, row by row."""
    _, outer, inner = labels
    if not tree.packed:
        return vec_form(items, (inner, outer), columns, sizes)
    form = vec_form(items, (outer, inner), columns, sizes)
    return Form(_product(kinds.Elimination(tree.outer), form.tree), form.crossed)


def _of_kronecker(
    items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes
) -> Form | None:
    """A[a,b] B[c,d] as entry [(a,c), (b,d)] of A ⊗ B, of which one depends on the argument: with
    vec(A ⊗ B) = (I ⊗ K ⊗ I) (vec A ⊗ vec B)."""
    merges = {item[1][0]: item for item in items if isinstance(item[0], kinds.Reshaped)}
    if len(rows) < 2 or not all(own in merges and own not in columns for own in rows):
        return None
    (_, (_, a, c)), (_, (_, b, d)) = (merges[own] for own in rows)
    rest = [item for item in items if item not in [merges[own] for own in rows]]
    for linked, alone in (((a, b), (c, d)), ((c, d), (a, b))):
        parts = _parted(rest, {*linked, *columns}, set(alone))
        if parts is None or set(alone) & set(columns):
            continue
        form = vec_form(parts[0], linked, columns, sizes)
        vector = vec_of(parts[1], alone, sizes)
        factors = (form.tree, vector) if linked == (a, b) else (vector, form.tree)
        turn = kronecker(kinds.Identity(sizes[b]), kinds.Commutation(sizes[d], sizes[a]))
        turn = kronecker(turn, kinds.Identity(sizes[c]))
        return Form(algebra.matmul(turn, kronecker(*factors)), form.crossed)
    return None


def _solved(items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes) -> Form | None:
    """With a matrix between the vec of two arrays among the items: the product with what is
    before and after it."""
    found = next((item for item in items if len(item[1]) == 4), None)
    if found is None:
        return None
    tree, (*first, third, fourth) = found
    rest = [item for item in items if item is not found]
    ways = ((tree, tuple(first), (third, fourth)), (None, (third, fourth), tuple(first)))
    for matrix, before, after in ways:
        parts = _parted(rest, {*rows, *before}, {*columns, *after})
        if parts is None:
            continue
        left = vec_form(parts[0], rows, before, sizes)
        right = vec_form(parts[1], after, columns, sizes)
        middle = algebra.transpose(tree) if matrix is None else matrix
        turn = [kinds.Commutation(*(sizes[own] for own in before))] if left.crossed else []
        return Form(algebra.matmul(left.tree, *turn, middle, right.tree), right.crossed)
    raise NoMatrixNotation


def _parted(
    items: Sequence[Item], first: set[int], second: set[int]
) -> tuple[list[Item], list[Item]] | None:
    """The items linked to the first labels and those linked to the second; None where some are
    linked to both."""
    parts: tuple[list[Item], list[Item]] = ([], [])
    for group in components(items, first | second):
        labels = set(labels_of(group)) & (first | second)
        if not (labels <= first or labels <= second):
            return None
        parts[not labels <= first].extend(group)
    return parts


def _reduced(items: Sequence[Item], output: Labels, sizes: Sizes) -> Graph:
    scalars = [tree for tree, labels in items if not labels]
    graph = Graph([item for item in items if item[1]], output, sizes, scalars)
    while any(rule(graph) for rule in RULES):
        pass
    return graph


def _chosen(items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes) -> Form | None:
    """Two axes of one side are linked with the one axis of the other: it is written twice, and
    the entries where both are equal are chosen."""
    if len(rows) == 1 and len(columns) == 2:
        flipped = _chosen(items, columns, rows, sizes)
        return None if flipped is None else Form(_transposed(flipped.tree))
    if len(columns) != 1 or len(rows) != 2 or columns[0] in rows:
        return None
    (own,) = columns
    twin = max(sizes) + 1
    renamed: list[Item] = []
    for tree, labels in items:
        second = rows[1] in labels
        renamed.append((tree, tuple(twin if i == own and second else i for i in labels)))
    form = direct_form(renamed, rows, (own, twin), {**sizes, twin: sizes[own]})
    return form and Form(algebra.matmul(form.tree, kinds.Diagonals(sizes[own])))


def _through(graph: Graph, rows: Labels, columns: Labels, sizes: Sizes) -> Form:
    """A product of two forms, with what is summed over as axes between, or other axes with it."""
    needed = dict.fromkeys((*(label for label in rows if label in columns), *graph.summed()))
    others = [label for label in dict.fromkeys((*rows, *columns)) if label not in needed]
    for count in range(3 - len(needed)):
        for chosen in itertools.combinations(others, count):
            form = _between(graph.items, rows, (*needed, *chosen), columns, sizes)
            if form is not None:
                return form
    raise NoMatrixNotation


def _between(
    items: Sequence[Item], rows: Labels, between: Labels, columns: Labels, sizes: Sizes
) -> Form | None:
    """The product of the forms before and after these axes; None where there is none."""
    first, second = {*rows, *between}, {*columns, *between}
    left = [item for item in items if set(item[1]) <= first]
    right = [item for item in items if item not in left]
    if not (between and left and right and all(set(labels) <= second for _, labels in right)):
        return None
    try:
        before = vec_form(left, rows, between, sizes)
        if before.crossed:
            between = between[::-1]
            before = vec_form(left, rows, between, sizes)
        after = vec_form(right, between, columns, sizes)
    except NoMatrixNotation:
        return None
    return Form(_product(before.tree, after.tree), after.crossed)
