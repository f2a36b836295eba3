"""Jacobians and Hessians as matrices, ∂vec Y/∂(vec X)ᵀ, as Magnus and Neudecker write them.

vec stacks the columns of a matrix. A symmetric input S is vectorised as vech S, its lower triangle
row by row, with vec S = D vech S; a lower triangular matrix A likewise, with vec A = Lᵀ vech A for
the elimination matrix L; an upper triangular one as vech of its transpose, and a diagonal one as
its diagonal.
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
from derivatrix.compiler.formulas.kronecker import Form, kronecker
from derivatrix.compiler.formulas.notation import Notation
from derivatrix.compiler.formulas.tree import Indices, Tree
from derivatrix.compiler.formulas.vec_forms import vec_form
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.dimensions import Dimension, Shape
from derivatrix.compiler.ir.product import Product

HALVES = {"symmetric": "symmetric", "spd": "symmetric", "lower": "lower", "upper": "upper"}
"""Structures of inputs that are vectorised by vech, and the half that determines them."""


@dataclass(frozen=True)
class Side:
    """The vectorisation of the value or of an input with `rank` axes. half: "symmetric", "lower"
    or "upper" for a matrix vectorised by vech, else ""; diagonal: True if it is its diagonal."""

    rank: int
    half: str = ""
    diagonal: bool = False

    @staticmethod
    def of(leaf: ir.Leaf) -> Side:
        """Return the vectorisation of an input."""
        return Side(leaf.ndim, HALVES.get(leaf.structure, ""), leaf.structure == "diagonal")

    @property
    def operator(self) -> str:
        """The name of the vectorisation: "vec", ..., or "" for the array itself."""
        if self.diagonal:
            return "diagonal"
        if self.half == "upper":
            return "vech of the transpose"
        return ("vech" if self.half else "vec") if self.rank == 2 else ""

    def count(self, shape: Shape) -> Dimension:
        """Return the length of a vectorised array of this shape."""
        if self.half:
            return sympy.expand(shape[0] * (shape[0] + 1) / 2)
        return shape[0] if self.diagonal else sympy.expand(sympy.Mul(*shape))

    def matrix(self, size: Dimension) -> Tree | None:
        """Return M with vec X = M x for a matrix X of this size that is vectorised as x (of an
        upper triangular one, the transpose); None if x is vec X."""
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
    """Build the matrix of a Jacobian whose first axes are those of `row`.

    builder: builds the trees of its factors. Raises NoMatrixNotation if there is no vec form.
    """
    if not (1 <= row.rank <= 2 and 1 <= column.rank <= 2 and row.rank + column.rank == node.ndim):
        raise NoMatrixNotation
    straight: dict[Tree, sympy.Expr] = {}
    crossed: dict[Tree, sympy.Expr] = {}
    for product in jacobian_products(node):
        form = _product_form(builder, product, row, column)
        coefficient, body = sympy.S.One, form.tree
        if isinstance(body, kinds.Scale) and body.body is not None:
            coefficient = body.coefficient
            body = algebra.scale(sympy.S.One, body.scalars, body.body)
        coefficients = crossed if form.crossed else straight
        coefficients[body] = coefficients.get(body, sympy.S.Zero) + coefficient
    commutation = kinds.Commutation(*node.shape[-2:])
    terms = [algebra.scale(number, [], body) for body, number in straight.items()]
    terms += [
        algebra.scale(number, [], algebra.matmul(body, commutation))
        for body, number in crossed.items()
    ]
    if not terms:
        shapes = node.shape[: row.rank], node.shape[row.rank :]
        return kinds.Zeros((row.count(shapes[0]), column.count(shapes[1])))
    tree = builder.sum_terms(terms)
    row_matrix, column_matrix = row.matrix(node.shape[0]), column.matrix(node.shape[-1])
    if column_matrix is not None:
        tree = algebra.matmul(tree, column_matrix)
    return tree if row_matrix is None else algebra.matmul(algebra.transpose(row_matrix), tree)


def _product_form(builder: Builder, product: Product, row: Side, column: Side) -> Form:
    """Write a product of `jacobian_products` as a matrix. Masks of triangular inputs are left out,
    as vech has the entries of the triangle only."""
    rows, columns = list(product.output[: row.rank]), list(product.output[row.rank :])
    factors = list(product.factors)
    for side, labels in ((row, rows), (column, columns)):
        if side.half == "upper":
            labels.reverse()
        if side.half in ("lower", "upper"):
            factors = [factor for factor in factors if not _is_mask(factor, labels)]
        if side.diagonal:
            labels[:] = dict.fromkeys(labels)
    items: list[Item] = [(convert(product.counted().coefficient), ())]
    items += [_item(builder, factor) for factor in factors]
    form = vec_form(without_spreads(items), tuple(rows), tuple(columns), product.sizes)
    return _simplify_beside_duplication(form, row, column)


def _tree(builder: Builder, node: ir.Node) -> Tree:
    if isinstance(node, ir.Structural):
        return matrix(node)
    return builder.tree(node, (None,) * node.ndim, frozenset())


def _item(builder: Builder, factor: ir.Factor) -> Item:
    """Build the tree of a factor; of the solutions X of Σ L X R = C for all C, the matrix M with
    vec X = M vec C, which is the inverse of Σ Rᵀ ⊗ L."""
    node, labels = factor
    if not isinstance(node, ir.Apply) or node.ndim < 3:
        return _tree(builder, node), labels
    assert node.operation.matrix_equation is not None
    terms = node.operation.matrix_equation(*(Array(matrix) for matrix, _ in node.arguments[:-1]))
    total = algebra.add([_vec_matrix(builder, *term, node.shape[-2:]) for term in terms])
    return algebra.power(total, -1), labels[2:] + labels[:2]


def _vec_matrix(builder: Builder, left: Array | None, right: Array | None, shape: Shape) -> Tree:
    """Build the matrix that maps vec X to vec(L X R), Rᵀ ⊗ L, for X of this shape."""
    if left is None and right is None:
        return kinds.Identity(sympy.expand(shape[0] * shape[1]))
    rows, columns = map(kinds.Identity, shape)
    return kronecker(
        columns if right is None else algebra.transpose(_tree(builder, right.node)),
        rows if left is None else _tree(builder, left.node),
    )


def _is_mask(factor: ir.Factor, labels: Sequence[int]) -> bool:
    """Tell whether a factor is the mask of a lower triangle with these axes."""
    node, node_labels = factor
    return isinstance(node, ir.Triangle) and node.offset == 0 and list(node_labels) == labels


def _simplify_beside_duplication(form: Form, row: Side, column: Side) -> Form:
    """Simplify a form that D follows or Dᵀ precedes: K D = D and Dᵀ K = Dᵀ, so that A ⊗ B may be
    replaced by (B ⊗ A) K."""
    tree, crossed = form.tree, form.crossed and column.half != "symmetric"
    if row.half != "symmetric":
        return Form(tree, crossed)
    match tree:
        case kinds.Scale(body=Tree() as body):
            inner = _simplify_beside_duplication(Form(body, crossed), row, column)
            return inner.scaled([kinds.Scale(tree.coefficient, tree.scalars, None)])
        case kinds.Kronecker() if crossed:
            return Form(kinds.Kronecker(tree.right, tree.left))
        case kinds.Kronecker() if column.half == "symmetric":
            parts = sorted((tree.left, tree.right), key=lambda part: part.sort_key)
            return Form(kinds.Kronecker(*parts))
        case kinds.Matmul() if column.half == "symmetric":
            return Form(algebra.matmul(*map(_without_transpose, tree.factors)))
    return Form(tree, crossed)


def _without_transpose(factor: Tree) -> Tree:
    """Replace vec Aᵀ by vec A."""
    match factor:
        case kinds.Vectorised(body=kinds.Transpose() as body, packed=False):
            return kinds.Vectorised(body.body, False)
        case kinds.Transpose(body=kinds.Vectorised() as body):
            return kinds.Transpose(_without_transpose(body))
    return factor
