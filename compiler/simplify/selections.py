"""Derivatives of `where`, selected by its condition instead of multiplied by its indicator.

The chain rule multiplies the slopes of the branch of `where(c, a, b)` that is not taken by [c] = 0,
and 0 ∞ is nan: the slope 1/x of where(x > 0, log(x), 0) at x = 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

import sympy
from sympy import Piecewise

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.arrays import Array, elementwise
from derivatrix.compiler.ir.graph import transformed, with_derived_steps
from derivatrix.compiler.ir.operation import Operation
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.scalar_functions import step


def with_selections(roots: Sequence[ir.Node], values: Iterable[ir.Node]) -> list[ir.Node]:
    """Make products in derivatives zero where an indicator in them is zero, even if other factors
    are infinite there; products in the function's own `values` stay."""
    declared = {*ir.topological(values)}
    return transformed(roots, lambda node: node if node in declared else _selected(node))


def _selected(node: ir.Node) -> ir.Node:
    """Select factors of a product by the indicators in it, or in the steps of a loop."""
    if isinstance(node, ir.Apply):
        return with_derived_steps(node, _selected_step)
    if not isinstance(node, ir.Einsum):
        return node
    product = Product.of(node)
    supports = {
        support
        for factor, labels in product.factors
        for support in ir.relabelled(_supports(factor), labels)
    }
    for support in sorted(supports, key=lambda factor: (len(factor[1]), factor[1], factor[0].key)):
        product = _selected_by(product, support)
    return node if product.factors == node.factors else product.node


def _selected_step(operation: Operation, nodes: Sequence[ir.Node]) -> list[ir.Node]:
    return with_selections(nodes, ())


def _selected_by(product: Product, support: ir.Factor) -> Product:
    """Select the factors that may be infinite where the indicator `support` is zero: those along
    its axes as one array, those with further axes one by one."""
    axes = {*support[1]}
    along, beyond = list[ir.Factor](), list[ir.Factor]()
    for node, labels in product.factors:
        if support in ir.relabelled(_supports(node), labels):
            continue
        if axes.issuperset(labels) and _may_be_infinite(node, True):
            along.append((node, labels))
        elif axes < {*labels} and _may_be_infinite(node, False):  # keeps matrix products
            beyond.append((node, labels))
    if not along and not beyond:
        return product
    factors = [factor for factor in product.factors if factor not in (*along, *beyond, support)]
    if along:
        factors.append(_selection(support, along, support[1]))
    factors += [_selection(support, [factor], factor[1]) for factor in beyond]
    return replace(product, factors=tuple(factors))


def _selection(support: ir.Factor, factors: Sequence[ir.Factor], labels: ir.Labels) -> ir.Factor:
    """Return the product of the factors along `labels`, set to zero where `support` is zero."""
    indicator, inside = support
    assert isinstance(indicator, ir.Map)
    conditions = [(argument, inside) for argument in indicator.arguments]
    axes = tuple(dict.fromkeys(labels))
    sizes = dict(zip(inside, indicator.shape, strict=True))
    for factor in factors:
        sizes.update(zip(factor[1], factor[0].shape, strict=True))
    sizes = {axis: sizes[axis] for axis in axes}
    arrays = [
        Array(factor[0] if factor[1] == axes else ir.einsum([factor], axes, sizes=sizes))
        for factor in (*conditions, *factors)
    ]
    value = sympy.Mul(*(ir.slot(len(conditions) + place) for place in range(len(factors))))
    pieces = [(value if holds else 0, condition) for holds, condition in indicator.expression.args]
    return elementwise(Piecewise(*pieces), *arrays).node, axes


@lru_cache(maxsize=65536)
def _supports(node: ir.Node) -> frozenset[ir.Factor]:
    """Return indicators, labelled by axes of the node, whose zeros are zeros of the node."""
    match node:
        case ir.Map():
            indicators = map(_indicator, sympy.Mul.make_args(node.expression))
            axes = tuple(range(node.ndim))
            return frozenset(
                (ir.Map(*ir.used_slots(indicator, node.arguments)), axes)
                for indicator in indicators
                if indicator is not None
            )
        case ir.Sum() if node.terms:
            return frozenset.intersection(*map(_supports, node.terms))
        case ir.Einsum():
            return frozenset(
                support
                for factor, labels in node.factors
                for support in ir.relabelled(_supports(factor), labels)
                if max(support[1], default=0) < node.ndim
            )
    return frozenset()


def _indicator(expression: sympy.Expr) -> sympy.Expr | None:
    """Return the indicator that a function is not on a branch that is 0; None without such."""
    if isinstance(expression, step):
        expression = expression.definition()
    if not isinstance(expression, Piecewise):
        return None
    pieces = [(0 if value == 0 else 1, condition) for value, condition in expression.args]
    indicator = Piecewise(*pieces)
    return indicator if isinstance(indicator, Piecewise) else None


@lru_cache(maxsize=65536)
def _may_be_infinite(node: ir.Node, inputs: bool) -> bool:
    """Return whether entries may be infinite or nan where the function's derivative is finite.
    `inputs`: whether inputs may. Tangents and cotangents are finite."""
    match node:
        case ir.Leaf():
            return inputs and node.role == "input"
        case ir.Constant() | ir.Structural():
            return False
        case ir.Map():
            return node.expression not in (_indicator(node.expression), step(ir.slot(0)))
        case ir.Sum() | ir.Einsum():
            return any(_may_be_infinite(child, inputs) for child in node.children)
    return True
