"""Derivatives of `where`, selected by its condition instead of multiplied by its indicator.

The chain rule multiplies the slopes of the branch of `where(c, a, b)` that is not taken by [c] = 0,
and 0 ∞ is nan: the slope 1/x of where(x > 0, log(x), 0) at x = 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

import sympy
from sympy import Piecewise

from derivatrix.compiler.ir.arrays import Array, elementwise
from derivatrix.compiler.ir.graph import transformed
from derivatrix.compiler.ir.nodes import (
    Constant,
    Einsum,
    Factor,
    Labels,
    Leaf,
    Map,
    Node,
    Structural,
    Sum,
    einsum,
    relabelled,
    slot,
    topological,
    used_slots,
)
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.scalar_functions import step


def with_selections(roots: Sequence[Node], values: Iterable[Node]) -> list[Node]:
    """Make products in derivatives zero where an indicator in them is zero, even if other factors
    are infinite there; products in the function's own `values` stay."""
    declared = {*topological(values)}
    return transformed(roots, lambda node: node if node in declared else _selected(node))


def _selected(node: Node) -> Node:
    """Select factors of a product by the indicators in it."""
    if not isinstance(node, Einsum):
        return node
    product = Product.of(node)
    supports = {
        support
        for factor, labels in product.factors
        for support in relabelled(_supports(factor), labels)
    }
    for support in sorted(supports, key=lambda factor: (len(factor[1]), factor[1], factor[0].key)):
        product = _selected_by(product, support)
    return node if product.factors == node.factors else product.node


def _selected_by(product: Product, support: Factor) -> Product:
    """Select the factors that may be infinite where the indicator `support` is zero: those along
    its axes as one array, those with further axes one by one."""
    axes = {*support[1]}
    along, beyond = list[Factor](), list[Factor]()
    for node, labels in product.factors:
        if support in relabelled(_supports(node), labels):
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


def _selection(support: Factor, factors: Sequence[Factor], labels: Labels) -> Factor:
    """Return the product of the factors where the indicator `support` is 1, and zero elsewhere, as
    an array along `labels`."""
    indicator, inside = support
    assert isinstance(indicator, Map)
    conditions = [(argument, inside) for argument in indicator.arguments]
    axes = tuple(dict.fromkeys(labels))
    sizes = dict(zip(inside, indicator.shape, strict=True))
    for factor in factors:
        sizes.update(zip(factor[1], factor[0].shape, strict=True))
    sizes = {axis: sizes[axis] for axis in axes}
    arrays = [
        Array(factor[0] if factor[1] == axes else einsum([factor], axes, sizes=sizes))
        for factor in (*conditions, *factors)
    ]
    value = sympy.Mul(*(slot(len(conditions) + place) for place in range(len(factors))))
    pieces = [(value if holds else 0, condition) for holds, condition in indicator.expression.args]
    return elementwise(Piecewise(*pieces), *arrays).node, axes


@lru_cache(maxsize=65536)
def _supports(node: Node) -> frozenset[Factor]:
    """Return indicators, labelled by axes of the node, whose zeros are zeros of the node."""
    match node:
        case Map():
            indicators = map(_indicator, sympy.Mul.make_args(node.expression))
            axes = tuple(range(node.ndim))
            return frozenset(
                (Map(*used_slots(indicator, node.arguments)), axes)
                for indicator in indicators
                if indicator is not None
            )
        case Sum() if node.terms:
            return frozenset.intersection(*map(_supports, node.terms))
        case Einsum():
            return frozenset(
                support
                for factor, labels in node.factors
                for support in relabelled(_supports(factor), labels)
                if max(support[1], default=0) < node.ndim
            )
    return frozenset()


def _indicator(expression: sympy.Expr) -> sympy.Expr | None:
    """Return 1 where a function with branches that are 0 is on another branch, else 0; None for
    other functions."""
    if isinstance(expression, step):
        expression = expression.definition()
    if not isinstance(expression, Piecewise):
        return None
    pieces = [(0 if value == 0 else 1, condition) for value, condition in expression.args]
    indicator = Piecewise(*pieces)
    return indicator if isinstance(indicator, Piecewise) else None


@lru_cache(maxsize=65536)
def _may_be_infinite(node: Node, inputs: bool) -> bool:
    """Return whether entries may be infinite or nan where the function's derivative is finite.
    `inputs`: whether inputs may. Tangents and cotangents are finite."""
    match node:
        case Leaf():
            return inputs and node.role == "input"
        case Constant() | Structural():
            return False
        case Map():
            return node.expression not in (_indicator(node.expression), step(slot(0)))
        case Sum() | Einsum():
            return any(_may_be_infinite(child, inputs) for child in node.children)
    return True
