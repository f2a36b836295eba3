"""Products of matrices with labels as matrices from the vec of one array to the vec of another.

The axes of a matrix A[i,j] in vec A, which stacks columns, are (j, i), the last one running
fastest. A product with a factor from each axis of the argument to one of the result is a
Kronecker product; where the factors cross, the commutation matrix follows it.
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
    """`tree`, or that times K where `crossed`: then `tree` acts on the vec of the transpose."""

    tree: Tree
    crossed: bool = False

    def scaled(self, scalars: Sequence[Tree]) -> Form:
        """The same times scalars."""
        return Form(algebra.scale(ONE, scalars, self.tree), self.crossed)


def direct_form(items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes) -> Form | None:
    """The product of the items, none of whose labels is summed over and none of which has more than
    two, as a matrix. rows, columns: the labels of the axes on either side; one on both sides links
    them as an identity matrix does. None where an axis has two partners."""
    if not set(rows) & set(columns) and not any(
        set(labels) & set(rows) and set(labels) & set(columns) for _, labels in items
    ):
        return _rank_one(items, rows, columns, sizes)
    if set(rows) == set(columns):
        return _diagonal(items, rows, columns, sizes)
    left = [item for item in items if len(rows) == 2 and set(item[1]) == set(rows)]
    right = [item for item in items if len(columns) == 2 and set(item[1]) == set(columns)]
    rest = [item for item in items if item not in left and item not in right]
    form = _kronecker(rest, rows, columns, sizes)
    if form is None:
        return None
    tree = form.tree
    if left:
        tree = algebra.matmul(_weights(left, rows, sizes), tree)
    if right:
        order = columns[::-1] if form.crossed else columns
        tree = algebra.matmul(tree, _weights(right, order, sizes))
    return Form(tree, form.crossed)


def _rank_one(items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes) -> Form:
    """The vec of one array times that of another, transposed."""
    left, right = (
        vec_of([item for item in items if set(item[1]) <= set(side)], side, sizes)
        for side in (rows, columns)
    )
    return Form(algebra.matmul(left, kinds.Transpose(right)))


def _diagonal(items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes) -> Form:
    """What acts on each entry by itself, or on each of the transpose."""
    if not items:
        size = sympy.expand(sympy.Mul(*(sizes[label] for label in rows)))
        return Form(kinds.Identity(size), rows != columns)
    if len(rows) == 2 and all(len(labels) < 2 for _, labels in items):
        inner, outer = (_factor(items, own, own, sizes) for own in rows)
        return Form(kronecker(outer, inner), rows != columns)
    return Form(_weights(items, rows, sizes), rows != columns)


def _weights(items: Sequence[Item], side: Labels, sizes: Sizes) -> Tree:
    """The diagonal matrix of the vec of a product."""
    return algebra.diag(vec_of(items, side, sizes))


def vec_of(items: Sequence[Item], side: Labels, sizes: Sizes) -> Tree:
    """The product of items with labels of one side only, as a vector."""
    tree = _plain(items, side, sizes)
    return tree if len(side) == 1 else vectorised(tree)


@algebra.linear
def vectorised(tree: Tree) -> Tree:
    """The vec of a matrix."""
    if isinstance(tree, kinds.Spread) and not tree.along:
        return algebra.scale(ONE, [tree.body], kinds.Ones(sympy.expand(sympy.Mul(*tree.shape))))
    return kinds.Vectorised(tree, False)


def _plain(items: Sequence[Item], output: Labels, sizes: Sizes) -> Tree:
    """The product as a vector or matrix with these axes."""
    tree = contract(list(items), output, sizes)
    if tree is None:
        raise NoMatrixNotation
    return as_chain(tree)


def _kronecker(items: Sequence[Item], rows: Labels, columns: Labels, sizes: Sizes) -> Form | None:
    """A product with a factor for each pair of axes; None where one axis has two partners."""
    links = {label: label for label in rows if label in columns}
    for _, labels in items:
        for row, column in (labels, labels[::-1]) if len(labels) == 2 else ():
            if row in rows and column in columns:
                if row in links or column in links.values():
                    return None
                links[row] = column
    left = [label for label in rows[::-1] if label not in links]
    right = [label for label in columns[::-1] if label not in links.values()]
    links |= dict(zip(left, right, strict=False))
    if len(rows) < len(columns):
        sources = {column: row for row, column in links.items()}
        factors = [_factor(items, sources.get(own), own, sizes) for own in columns[::-1]]
    else:
        factors = [_factor(items, own, links.get(own), sizes) for own in rows[::-1]]
    crossed = len(rows) == len(columns) == 2 and links[rows[0]] != columns[0]
    return Form(kronecker(factors[0], factors[1]) if len(factors) > 1 else factors[0], crossed)


def _factor(items: Sequence[Item], row: int | None, column: int | None, sizes: Sizes) -> Tree:
    """The factor from an axis of the argument to one of the result; without either, a column or
    a row."""
    own = [item for item in items if item[1] and set(item[1]) <= {row, column}]
    if row == column:
        assert row is not None
        if not own:
            return kinds.Identity(sizes[row])
        return algebra.diag(_plain(own, (row,), sizes))
    if row is None:
        assert column is not None
        return kinds.Transpose(_plain(own, (column,), sizes))
    return _plain(own, (row,) if column is None else (row, column), sizes)


def kronecker(left: Tree, right: Tree) -> Tree:
    """The Kronecker product, with scalars in front."""
    (first, one), (second, other) = map(split, (left, right))
    return algebra.scale(ONE, [first, second], kinds.Kronecker(one, other))


def split(tree: Tree) -> tuple[Tree, Tree]:
    """A factor as a scalar and the rest."""
    if is_row(tree):
        scalar, body = split(tree.body)
        return scalar, kinds.Transpose(body)
    if isinstance(tree, kinds.Spread) and tree.rank == 1:
        return tree.body, kinds.Ones(tree.shape[0])
    if isinstance(tree, kinds.Scale) and tree.body is not None:
        return kinds.Scale(tree.coefficient, tree.scalars, None), tree.body
    return kinds.Number(ONE), tree
