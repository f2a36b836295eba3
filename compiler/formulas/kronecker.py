"""Labelled products as matrices from the vec of one array to the vec of another.

In vec A, which stacks columns, the axes of A[i,j] are ordered (j, i), the last one running fastest.
A product with one factor from each axis of the argument to one of the result is a Kronecker
product; where the factors cross, the commutation matrix follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy

from derivatrix.compiler.formulas import algebra
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.build import Item
from derivatrix.compiler.formulas.contract import Sizes, contract
from derivatrix.compiler.formulas.indexing import NoMatrixNotation, as_chain
from derivatrix.compiler.formulas.tree import Tree, is_row
from derivatrix.compiler.ir.nodes import Labels

ONE = sympy.S.One


@dataclass(frozen=True)
class Form:
    """The matrix `tree`; if `crossed`, `tree` times K: it acts on the vec of the transpose."""

    tree: Tree
    crossed: bool = False

    def scaled(self, scalars: Sequence[Tree]) -> Form:
        """Multiply the matrix by scalars."""
        return Form(algebra.scale(ONE, scalars, self.tree), self.crossed)


def direct_form(items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes) -> Form | None:
    """Write the product of items of at most two labels, none of them summed, as a matrix.

    rows, columns: the labels of the axes of the result and of the argument; a label on both sides
    links them as an identity matrix does. None: an axis has two partners.
    """
    if not set(rows) & set(columns) and not any(
        set(labels) & set(rows) and set(labels) & set(columns) for _, labels in items
    ):
        return _rank_one(items, rows, columns, sizes)
    if set(rows) == set(columns):
        return _diagonal(items, rows, columns, sizes)
    row_items = [item for item in items if len(rows) == 2 and set(item[1]) == set(rows)]
    column_items = [item for item in items if len(columns) == 2 and set(item[1]) == set(columns)]
    links = [item for item in items if item not in row_items and item not in column_items]
    form = _kronecker(links, rows, columns, sizes)
    if form is None:
        return None
    tree = form.tree
    if row_items:
        tree = algebra.matmul(_weights(row_items, rows, sizes), tree)
    if column_items:
        order = columns[::-1] if form.crossed else columns
        tree = algebra.matmul(tree, _weights(column_items, order, sizes))
    return Form(tree, form.crossed)


def _rank_one(items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes) -> Form:
    """Write the vec of one array times the transposed vec of another."""
    left, right = (
        vec_of([item for item in items if set(item[1]) <= set(side)], side, sizes)
        for side in (rows, columns)
    )
    return Form(algebra.matmul(left, kinds.Transpose(right)))


def _diagonal(items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes) -> Form:
    """Write a matrix that acts on each entry of the argument, or of its transpose, alone."""
    if not items:
        size = sympy.expand(sympy.Mul(*(sizes[label] for label in rows)))
        return Form(kinds.Identity(size), rows != columns)
    if len(rows) == 2 and all(len(labels) < 2 for _, labels in items):
        inner, outer = (_factor(items, label, label, sizes) for label in rows)
        return Form(kronecker(outer, inner), rows != columns)
    return Form(_weights(items, rows, sizes), rows != columns)


def _weights(items: Sequence[Item], labels: Labels, sizes: Sizes) -> Tree:
    """Make the diagonal matrix of the vec of a product."""
    return algebra.diag(vec_of(items, labels, sizes))


def vec_of(items: Sequence[Item], labels: Labels, sizes: Sizes) -> Tree:
    """Write the product of items with the labels of one side only as a vector."""
    tree = _array(items, labels, sizes)
    return tree if len(labels) == 1 else vectorised(tree)


@algebra.linear
def vectorised(tree: Tree) -> Tree:
    """Take the vec of a matrix."""
    if isinstance(tree, kinds.Spread) and not tree.along:
        return algebra.scale(ONE, [tree.body], kinds.Ones(sympy.expand(sympy.Mul(*tree.shape))))
    return kinds.Vectorised(tree, False)


def _array(items: Sequence[Item], output: Labels, sizes: Sizes) -> Tree:
    """Write a product as a vector or matrix with the axes `output`."""
    tree = contract(list(items), output, sizes)
    if tree is None:
        raise NoMatrixNotation
    return as_chain(tree)


def _kronecker(items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes) -> Form | None:
    """Write a product with a factor for each pair of axes; None if an axis has two partners."""
    column_of = {label: label for label in rows if label in columns}
    for _, labels in items:
        for row, column in (labels, labels[::-1]) if len(labels) == 2 else ():
            if row in rows and column in columns:
                if row in column_of or column in column_of.values():
                    return None
                column_of[row] = column
    unlinked_rows = [label for label in rows[::-1] if label not in column_of]
    unlinked_columns = [label for label in columns[::-1] if label not in column_of.values()]
    column_of |= dict(zip(unlinked_rows, unlinked_columns, strict=False))
    if len(rows) < len(columns):
        row_of = {column: row for row, column in column_of.items()}
        factors = [_factor(items, row_of.get(column), column, sizes) for column in columns[::-1]]
    else:
        factors = [_factor(items, row, column_of.get(row), sizes) for row in rows[::-1]]
    crossed = len(rows) == len(columns) == 2 and column_of[rows[0]] != columns[0]
    return Form(kronecker(factors[0], factors[1]) if len(factors) > 1 else factors[0], crossed)


def _factor(items: Sequence[Item], row: int | None, column: int | None, sizes: Sizes) -> Tree:
    """Write the factor from an axis of the argument to one of the result. It is a column without
    an axis of the argument, and a row without one of the result."""
    linked = [item for item in items if item[1] and set(item[1]) <= {row, column}]
    if row == column:
        assert row is not None
        if not linked:
            return kinds.Identity(sizes[row])
        return algebra.diag(_array(linked, (row,), sizes))
    if row is None:
        assert column is not None
        return kinds.Transpose(_array(linked, (column,), sizes))
    return _array(linked, (row,) if column is None else (row, column), sizes)


def kronecker(left: Tree, right: Tree) -> Tree:
    """Multiply matrices or vectors by the Kronecker product, with scalars in front."""
    (left_scalar, left_body), (right_scalar, right_body) = map(split_scalar, (left, right))
    product = kinds.Kronecker(left_body, right_body)
    return algebra.scale(ONE, [left_scalar, right_scalar], product)


def split_scalar(tree: Tree) -> tuple[Tree, Tree]:
    """Split a factor into a scalar and an array."""
    if is_row(tree):
        scalar, body = split_scalar(tree.body)
        return scalar, kinds.Transpose(body)
    if isinstance(tree, kinds.Spread) and tree.rank == 1:
        return tree.body, kinds.Ones(tree.shape[0])
    if isinstance(tree, kinds.Scale) and tree.body is not None:
        return kinds.Scale(tree.coefficient, tree.scalars, None), tree.body
    return kinds.Number(ONE), tree
