"""A Jacobian as a sum of products whose factors are at most matrices."""

from __future__ import annotations

from derivatrix.compiler.formulas.indexing import NoMatrixNotation
from derivatrix.compiler.formulas.solves import EQUATIONS
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.graph import masked
from derivatrix.compiler.ir.product import Product

MOST_TERMS = 64
"""Sums in factors are multiplied out up to so many terms."""


def jacobian_products(node: ir.Node) -> list[Product]:
    """The products whose sum the node is, with one label for axes that are equal. Their factors of
    more than two axes are solutions of equations for `units`. Raises NoMatrixNotation where a
    factor is neither a matrix nor made of such, or there are too many terms."""
    return [product.without_deltas() for product in Product.of_factor(node).rewritten(_opened)]


def multiplied_out(node: ir.Node) -> ir.Node:
    """The node as a sum of products whose factors are at most matrices. Raises NoMatrixNotation
    where it is none, or one of them solves an equation."""
    products = Product.of_factor(node).rewritten(_opened)
    factors = [part for product in products for part, _ in product.factors]
    if any(isinstance(part, ir.Apply) and part.ndim > 2 for part in factors):
        raise NoMatrixNotation
    terms = tuple(product.without_deltas(product.output).node for product in products)
    return terms[0] if len(terms) == 1 else ir.Sum(terms, node.shape)


def _opened(product: Product, others: int) -> list[Product] | None:
    """The products that one with a factor of more than two axes is the sum of; None if it has no
    such factor."""
    if others >= MOST_TERMS:
        raise NoMatrixNotation
    for position, (node, labels) in enumerate(product.factors):
        if node.ndim < 3 or isinstance(node, ir.Structural):
            continue
        own = masked(node)
        if isinstance(own, ir.Einsum | ir.Sum):
            return product.multiplied_out(position, own)
        if not isinstance(own, ir.Apply) or own.operation.name not in EQUATIONS:
            raise NoMatrixNotation
        if own.arguments[-1][0] is not units(own.shape[-2:]):
            return [_solved(product.without(position), own, labels)]
    return None


def _solved(rest: Product, node: ir.Apply, labels: ir.Labels) -> Product:
    """The product with the solution of an equation, all of whose stacked axes are those of its
    right-hand side, as that right-hand side times the solutions for matrices with one 1."""
    depth = len(node.stack)
    *others, (given, stacked) = node.arguments
    if any(own for _, own in others):
        raise NoMatrixNotation
    core, sizes = rest.fresh(2), node.shape[depth:]
    arguments = (*others, (units(sizes), (0, 1)))
    solve = ir.Apply(node.operation, arguments, sizes, node.parameters, node.output)
    factor = (given, (*(labels[own] for own in stacked), *core))
    return rest.times((solve, (*core, *labels[depth:])), factor)


def units(sizes: Shape) -> ir.Node:
    """The matrices of these sizes with one 1: [i,j,k,l] is entry [k,l] of that with 1 at [i,j]."""
    row, column = map(ir.Delta, sizes)
    return ir.einsum([(row, "ik"), (column, "jl")], "ijkl")
