"""Inverses and determinants of Kronecker products, by those of the factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.arrays import Array, apply, scale
from derivatrix.compiler.ir.product import Product, components
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.operations.determinant import LOG_ABSOLUTE_DETERMINANT, LOG_DETERMINANT
from derivatrix.compiler.operations.inverse import INVERSE


class Kronecker(NamedTuple):
    """coefficient * left ⊗ right; `merge` merges two axes into one."""

    coefficient: sympy.Expr
    left: Array
    right: Array
    merge: ir.Reshape


def inverse_of_kronecker(node: ir.Apply) -> ir.Node | None:
    """(c A ⊗ B)⁻¹ = A⁻¹ ⊗ B⁻¹ / c."""
    if node.operation is not INVERSE or node.stack:
        return None
    product = _kronecker(node.arguments[0][0])
    if product is None:
        return None
    factors: list[tuple[ir.Node, str]] = [
        (apply(INVERSE, product.left).node, "ij"),
        (apply(INVERSE, product.right).node, "kl"),
        (product.merge, "rik"),
        (product.merge, "sjl"),
    ]
    return ir.einsum(factors, "rs", 1 / product.coefficient)


def logarithm_of_determinant_of_kronecker(node: ir.Apply) -> ir.Node | None:
    """log |det(c A ⊗ B)| = q log |det A| + p log |det B| + p q log |c| for A (p, p) and B (q, q).

    Without the absolute value this holds where both determinants are positive: of two negative
    ones the product's may be positive.
    """
    operation = node.operation
    if operation not in (LOG_DETERMINANT, LOG_ABSOLUTE_DETERMINANT) or node.stack:
        return None
    product = _kronecker(node.arguments[0][0])
    if product is None:
        return None
    coefficient, left, right, merge = product
    definite = all("spd" in facts(factor.node) for factor in (left, right))
    if operation is LOG_DETERMINANT and not (definite and coefficient.is_positive):
        return None
    size, outer, inner = merge.shape
    constant = Array(ir.full(size * sympy.log(sympy.Abs(coefficient))))
    logarithms = scale(apply(operation, left), inner) + scale(apply(operation, right), outer)
    return (logarithms + constant).node


def _kronecker(node: ir.Node) -> Kronecker | None:
    """Write a matrix as the Kronecker product of two square ones; None if it is none."""
    if not isinstance(node, ir.Einsum) or node.ndim != 2:
        return None
    merges = {
        labels[0]: (factor, labels)
        for factor, labels in node.factors
        if isinstance(factor, ir.Reshape)
    }
    if {*merges} != {0, 1} or merges[0][0] is not merges[1][0]:
        return None
    merge, (_, row, below) = merges[0]
    _, (_, column, right) = merges[1]
    factors = [factor for factor in node.factors if factor not in merges.values()]
    groups = components(factors, ())
    if any({0, 1} & {*ir.labels_of(group)} for group in groups):
        return None
    lower = [group for group in groups if {below, right} & {*ir.labels_of(group)}]
    upper = [group for group in groups if group not in lower]
    if any({row, column} & {*ir.labels_of(group)} for group in lower):
        return None
    product = Product.of(node)
    assert isinstance(merge, ir.Reshape)
    return Kronecker(
        node.coefficient,
        _matrix(product, upper, row, column),
        _matrix(product, lower, below, right),
        merge,
    )


def _matrix(product: Product, groups: Sequence[list[ir.Factor]], row: int, column: int) -> Array:
    """Multiply factors to a matrix; with one label for rows and columns it is diagonal."""
    factors: list[tuple[ir.Node, tuple[int, ...]]] = [
        factor for group in groups for factor in group
    ]
    if row == column:
        (column,) = product.fresh(1)
        factors.append((ir.Delta(product.sizes[row]), (row, column)))
    sizes = {row: product.sizes[row], column: product.sizes.get(column, product.sizes[row])}
    return Array(ir.einsum(factors, (row, column), sizes=sizes))
