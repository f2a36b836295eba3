"""Jacobians as sums of products whose factors are at most matrices."""

from __future__ import annotations

from derivatrix.compiler.formulas.indexing import NoMatrixNotation
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.graph import masked
from derivatrix.compiler.ir.product import Product

MAX_TERMS = 64
"""Most terms of a Jacobian whose factors are multiplied out."""


def jacobian_products(node: ir.Node) -> list[Product]:
    """Write a node as a sum of products, with one label for axes that are equal.

    Factors of more than two axes are solutions of equations for `units`. Raises NoMatrixNotation
    if another factor of more than two axes cannot be multiplied out, or terms are too many.
    """
    products = Product.of_factor(node).rewritten(_multiply_out)
    return [product.without_deltas() for product in products]


def multiplied_out(node: ir.Node) -> ir.Node:
    """Rewrite a node as a sum of products whose factors are at most matrices. Raises
    NoMatrixNotation if that is impossible."""
    products = Product.of_factor(node).rewritten(_multiply_out)
    factors = [part for product in products for part, _ in product.factors]
    if any(isinstance(part, ir.Apply) and part.ndim > 2 for part in factors):
        raise NoMatrixNotation
    terms = tuple(product.without_deltas(product.output).node for product in products)
    return terms[0] if len(terms) == 1 else ir.Sum(terms, node.shape)


def _multiply_out(product: Product, other_count: int) -> list[Product] | None:
    """Multiply out a factor of more than two axes; None if there is none. `others`: the number of
    other products."""
    if other_count >= MAX_TERMS:
        raise NoMatrixNotation
    for position, (node, labels) in enumerate(product.factors):
        if node.ndim < 3 or isinstance(node, ir.Structural):
            continue
        factor = masked(node)
        if isinstance(factor, ir.Einsum | ir.Sum):
            return product.multiplied_out(position, factor)
        if not isinstance(factor, ir.Apply) or factor.operation.matrix_equation is None:
            raise NoMatrixNotation
        if factor.arguments[-1][0] is not units(factor.shape[-2:]):
            return [_solve_for_units(product.without(position), factor, labels)]
    return None


def _solve_for_units(product: Product, node: ir.Apply, labels: ir.Labels) -> Product:
    """Multiply `product` by the solutions of an equation for stacked right-hand sides: these
    right-hand sides times the solutions for the matrices `units`."""
    depth = len(node.stack)
    *coefficients, (right_side, stack_labels) = node.arguments
    if any(coefficient_labels for _, coefficient_labels in coefficients):
        raise NoMatrixNotation
    core, sizes = product.fresh(2), node.shape[depth:]
    arguments = (*coefficients, (units(sizes), (0, 1)))
    solve = ir.Apply(node.operation, arguments, sizes, node.parameters, node.output)
    factor = (right_side, (*(labels[label] for label in stack_labels), *core))
    return product.times((solve, (*core, *labels[depth:])), factor)


def units(sizes: Shape) -> ir.Node:
    """Stack the matrices with one 1: [i,j,k,l] is entry [k,l] of the matrix with a 1 at [i,j]."""
    row, column = map(ir.Delta, sizes)
    return ir.einsum([(row, "ik"), (column, "jl")], "ijkl")
