"""Jacobians and Hessians as matrices, ∂vec Y/∂(vec X)ᵀ, as Magnus and Neudecker write them.

vec stacks the columns of a matrix. A symmetric input S stands as vech S, its lower triangle row by
row, with vec S = D vech S; so does a lower triangular L, with vec L = Lᵀ vech L for the elimination
matrix L, the transpose of an upper triangular one, and a diagonal one as its diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from derivatrix.compiler.formulas import algebra, factoring
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.arrays import Arrays
from derivatrix.compiler.formulas.build import Builder, Item, matrix, without_spreads
from derivatrix.compiler.formulas.expressions import convert
from derivatrix.compiler.formulas.indexing import NoMatrixNotation
from derivatrix.compiler.formulas.jacobian_products import jacobian_products
from derivatrix.compiler.formulas.kronecker import Form
from derivatrix.compiler.formulas.notation import Notation
from derivatrix.compiler.formulas.solves import solving_matrix
from derivatrix.compiler.formulas.tree import Indices, Tree
from derivatrix.compiler.formulas.vec_forms import vec_form
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Dimension, Shape
from derivatrix.compiler.ir.product import Product

HALVES = {"symmetric": "symmetric", "spd": "symmetric", "lower": "lower", "upper": "upper"}
"""The structures whose matrices stand as vech, by what they are."""


@dataclass(frozen=True)
class Side:
    """What is differentiated, or by what: an array with so many axes. half: "symmetric", "lower"
    or "upper" where vech stands for the matrix, else ""; diagonal: whether its diagonal does."""

    rank: int
    half: str = ""
    diagonal: bool = False

    @staticmethod
    def of(leaf: ir.Leaf) -> Side:
        """The side of an input."""
        return Side(leaf.ndim, HALVES.get(leaf.structure, ""), leaf.structure == "diagonal")

    @property
    def operator(self) -> str:
        """What stands for the array: "vec", ..., or "" for itself."""
        if self.diagonal:
            return "diagonal"
        if self.half == "upper":
            return "vech of the transpose"
        return ("vech" if self.half else "vec") if self.rank == 2 else ""

    def count(self, shape: Shape) -> Dimension:
        """The number of entries of what stands for an array of this shape."""
        if self.half:
            return sympy.expand(shape[0] * (shape[0] + 1) / 2)
        return shape[0] if self.diagonal else sympy.expand(sympy.Mul(*shape))

    def matrix(self, size: Dimension) -> Tree | None:
        """M with vec X = M x for what stands for a matrix X of this size, or its transpose if that
        is upper triangular; None for vec X itself."""
        if self.half == "symmetric":
            return kinds.Duplication(size)
        return kinds.Transpose(kinds.Elimination(size)) if self.half else None


class _VecForm(Builder):
    """Builds the matrix of a Jacobian between two sides. The further arguments are those of the
    builder that it is combined with."""

    def __init__(self, sides: tuple[Side, Side], *arguments: Any, **keywords: Any) -> None:
        self.sides = sides
        super().__init__(*arguments, **keywords)

    def right_side(self, node: ir.Node) -> tuple[Tree, Indices]:
        if node is not self.root:
            return super().right_side(node)  # type: ignore[safe-super]
        return vec_tree(self, node, *self.sides), (None, None)

    def _deep_nodes(self) -> list[ir.Node]:
        """List deep nodes of at most two axes; larger ones are multiplied out."""
        return [node for node in super()._deep_nodes() if node.ndim < 3]

    def sum_terms(self, terms: Sequence[Tree]) -> Tree:
        return algebra.add(terms)


class VecNotation(_VecForm, Notation):
    """Builds trees for the styles vec and vec-latex."""

    def sum_terms(self, terms: Sequence[Tree]) -> Tree:
        tree = algebra.add(terms)
        return factoring.factor(tree) if isinstance(tree, kinds.Add) else tree


class VecArrays(_VecForm, Arrays):
    """Builds trees for the style vec-numpy."""


def vec_tree(builder: _VecForm, node: ir.Node, row: Side, column: Side) -> Tree:
    """The matrix of a Jacobian whose first axes are those of `row`.

    builder: makes the trees of its factors. Raises NoMatrixNotation where there is no vec form.
    """
    if not (1 <= row.rank <= 2 and 1 <= column.rank <= 2 and row.rank + column.rank == node.ndim):
        raise NoMatrixNotation
    straight: dict[Tree, sympy.Expr] = {}
    crossed: dict[Tree, sympy.Expr] = {}
    for product in jacobian_products(node):
        form = _of_product(builder, product, row, column)
        coefficient, body = _split(form.tree)
        found = crossed if form.crossed else straight
        found[body] = found.get(body, sympy.S.Zero) + coefficient
    turn = kinds.Commutation(*node.shape[-2:])
    terms = [algebra.scale(number, [], body) for body, number in straight.items()]
    terms += [
        algebra.scale(number, [], algebra.matmul(body, turn)) for body, number in crossed.items()
    ]
    if not terms:
        shapes = node.shape[: row.rank], node.shape[row.rank :]
        return kinds.Zeros((row.count(shapes[0]), column.count(shapes[1])))
    tree = builder.sum_terms(terms)
    before, after = row.matrix(node.shape[0]), column.matrix(node.shape[-1])
    if after is not None:
        tree = algebra.matmul(tree, after)
    return tree if before is None else algebra.matmul(algebra.transpose(before), tree)


def _split(tree: Tree) -> tuple[sympy.Expr, Tree]:
    """A term as a number and the rest."""
    if isinstance(tree, kinds.Scale) and tree.body is not None:
        return tree.coefficient, algebra.scale(sympy.S.One, tree.scalars, tree.body)
    return sympy.S.One, tree


def _of_product(builder: Builder, product: Product, row: Side, column: Side) -> Form:
    rows, columns = list(product.output[: row.rank]), list(product.output[row.rank :])
    factors = list(product.factors)
    for side, labels in ((row, rows), (column, columns)):
        if side.half == "upper":
            labels.reverse()
        if side.half in ("lower", "upper"):
            factors = [own for own in factors if not _masks(own, labels)]
        if side.diagonal:
            labels[:] = dict.fromkeys(labels)
    items: list[Item] = [(convert(product.counted().coefficient), ())]
    items += [_item(builder, node, own) for node, own in factors]
    form = vec_form(without_spreads(items), tuple(rows), tuple(columns), product.sizes)
    return _beside_duplications(form, row, column)


def _whole(builder: Builder, node: ir.Node) -> Tree:
    if isinstance(node, ir.Structural):
        return matrix(node)
    return builder.tree(node, (None,) * node.ndim, frozenset())


def _item(builder: Builder, node: ir.Node, labels: ir.Labels) -> Item:
    """A factor as a tree; solutions of an equation as the matrix that makes them."""
    if not isinstance(node, ir.Apply) or node.ndim < 3:
        return _whole(builder, node), labels
    arguments = [_whole(builder, argument) for argument, _ in node.arguments[:-1]]
    tree = solving_matrix(node.operation.name, arguments, node.shape[-2:])
    return tree, labels[2:] + labels[:2]


def _masks(factor: ir.Factor, labels: Sequence[int]) -> bool:
    """Whether a factor is the mask of a lower triangle with these axes."""
    node, own = factor
    return isinstance(node, ir.Triangle) and node.offset == 0 and list(own) == labels


def _beside_duplications(form: Form, row: Side, column: Side) -> Form:
    """The same where D is on its right, with K D = D, or Dᵀ on its left, where A ⊗ B is as good as
    (B ⊗ A) K."""
    tree, crossed = form.tree, form.crossed and column.half != "symmetric"
    if row.half != "symmetric":
        return Form(tree, crossed)
    match tree:
        case kinds.Scale(body=Tree() as body):
            inner = _beside_duplications(Form(body, crossed), row, column)
            return inner.scaled([kinds.Scale(tree.coefficient, tree.scalars, None)])
        case kinds.Kronecker() if crossed:
            return Form(kinds.Kronecker(tree.right, tree.left))
        case kinds.Kronecker() if column.half == "symmetric":
            parts = sorted((tree.left, tree.right), key=lambda own: own.sort_key)
            return Form(kinds.Kronecker(*parts))
        case kinds.Matmul() if column.half == "symmetric":
            return Form(algebra.matmul(*map(_upright, tree.factors)))
    return Form(tree, crossed)


def _upright(factor: Tree) -> Tree:
    """vec A for vec Aᵀ."""
    match factor:
        case kinds.Vectorised(body=kinds.Transpose() as body, packed=False):
            return kinds.Vectorised(body.body, False)
        case kinds.Transpose(body=kinds.Vectorised() as body):
            return kinds.Transpose(_upright(body))
    return factor
