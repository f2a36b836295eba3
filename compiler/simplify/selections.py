"""Derivatives of `where`, `max` and `min`, selected by conditions instead of multiplied by
indicators.

The chain rule multiplies the slopes of the branch of `where(c, a, b)` that is not taken by [c] = 0,
and 0 ∞ is nan: the slope 1/x of where(x > 0, log(x), 0) at x = 0, or of sqrt(max(x, 0)) at x < 0.
"""

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
from derivatrix.compiler.ir.scalar_functions import step, xlogy
from derivatrix.compiler.ir.signs import is_positive


def with_selections(roots: Sequence[ir.Node], values: Iterable[ir.Node]) -> list[ir.Node]:
    """Make products in derivatives zero where an indicator in them is zero, even if other factors
    are infinite there; products in the function's own `values` stay."""
    declared = {*ir.topological(values)}
    nodes = transformed(roots, lambda node: node if node in declared else _selected(node))
    # last: a power that is selected by its factor needs no selection of the other factors
    return transformed(nodes, lambda node: node if node in declared else _selected_power(node))


def _selected(node: ir.Node) -> ir.Node:
    """Select factors of a product by the indicators in it, or in the steps of a loop."""
    if isinstance(node, ir.Apply):
        return with_derived_steps(node, _selected_step)
    if isinstance(node, ir.Map):
        expression = node.expression.replace(lambda part: part.is_Mul, _selected_by_slopes)
        return node if expression == node.expression else ir.Map(expression, node.arguments)
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


def _selected_by_slopes(product: sympy.Expr) -> sympy.Expr:
    """Make a product zero where the slope of max or min in it is, if other factors have poles. At
    poles of the arguments of max and min themselves, limits are found otherwise
    (`finite_parts`)."""
    arguments = [_sign_argument(factor) for factor in product.args]
    differences = [argument for argument in arguments if argument is not None]
    others = [factor for factor, u in zip(product.args, arguments, strict=True) if u is None]
    powers = [power for u in differences for power in u.atoms(sympy.Pow)]
    if not differences or any(power.exp.is_negative for power in powers):
        return product
    if not any(map(_has_poles, others)):
        return product
    is_zero = sympy.Or(*(difference < 0 for difference in differences))
    return Piecewise((0, is_zero), (product, True))


def _selected_power(node: ir.Node) -> ir.Node:
    """Make p xᵖ⁻¹ zero for p = 0, also p x²ᵖ⁻¹, and p (p - 1) xᵖ⁻² for p = 0 and p = 1, even at x =
    0, where the power is infinite."""
    if not isinstance(node, ir.Map) or not node.expression.has(sympy.Pow):
        return node
    arguments = node.arguments

    def may_be_zero(expression: sympy.Expr) -> bool:
        if not expression.free_symbols:
            return not expression.is_nonzero
        return not is_positive(ir.Map(*ir.used_slots(expression, arguments)))

    def selected(product: sympy.Expr) -> sympy.Expr:
        powers = [part for part in product.args if isinstance(part, sympy.Pow)]
        exponents = [p.exp for p in powers if p.exp.free_symbols and may_be_zero(p.base)]
        zeros = [
            factor
            for factor in product.args
            if any(_is_negative_at_zero(exponent, factor) for exponent in exponents)
            and may_be_zero(factor)
        ]
        if not zeros:
            return product
        is_zero = sympy.Or(*(sympy.Eq(factor, 0) for factor in zeros))
        return Piecewise((0, is_zero), (product, True))

    expression = node.expression.replace(lambda part: part.is_Mul, selected)
    return node if expression == node.expression else ir.Map(expression, arguments)


def _is_negative_at_zero(exponent: sympy.Expr, factor: sympy.Expr) -> bool:
    """Return whether an exponent is negative where a factor, linear in a symbol as it is, is 0."""
    for symbol in factor.free_symbols:
        ratio = exponent.coeff(symbol) / factor.coeff(symbol)
        if ratio.is_positive and sympy.expand(ratio * factor - exponent).is_positive:
            return True
    return False


def _selected_step(operation: Operation, nodes: Sequence[ir.Node]) -> list[ir.Node]:
    return with_selections(nodes, ())


def _selected_by(product: Product, support: ir.Factor) -> Product:
    """Select the factors that may be infinite where the indicator `support` is zero: those along
    its axes as one array, those with further axes one by one. The slope of max or min, which is
    1/2 at ties, stays a factor, and so do weights; only factors with poles are selected by them."""
    axes = {*support[1]}
    indicator = _slope_indicator(support)
    along, beyond = list[ir.Factor](), list[ir.Factor]()
    for node, labels in product.factors:
        if not {support, indicator}.isdisjoint(ir.relabelled(_supports(node), labels)):
            continue
        if indicator is not None and not _has_pole(node):
            continue
        if axes.issuperset(labels) and _may_be_infinite(node, True):
            along.append((node, labels))
        elif axes < {*labels} and _may_be_infinite(node, False):  # keeps matrix products
            beyond.append((node, labels))
    if not along and not beyond:
        return product
    replaced = [*along, *beyond, *([support] if indicator is None else [])]
    factors = [factor for factor in product.factors if factor not in replaced]
    selecting = indicator or support
    if along:
        factors.append(_selection(selecting, along, support[1]))
    factors += [_selection(selecting, [factor], factor[1]) for factor in beyond]
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
    """Return indicators, or weights, labelled by axes of the node, whose zeros are zeros of the
    node."""
    match node:
        case ir.Apply() if node.operation.is_selector:
            return frozenset({(node, tuple(range(node.ndim)))})
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
                if max(support[1], default=-1) < node.ndim
            )
    return frozenset()


def _indicator(expression: sympy.Expr) -> sympy.Expr | None:
    """Return the indicator that a function is not on a branch that is 0, or the slope of max or
    min; None for others."""
    if _sign_argument(expression) is not None:
        return expression
    if isinstance(expression, step):
        expression = expression.definition()
    if not isinstance(expression, Piecewise):
        return None
    pieces = [(0 if value == 0 else 1, condition) for value, condition in expression.args]
    indicator = Piecewise(*pieces)
    return indicator if isinstance(indicator, Piecewise) else None


def _slope_indicator(support: ir.Factor) -> ir.Factor | None:
    """Return the indicator that a slope of max or min, or a weight, is not 0; None for other
    supports."""
    node, labels = support
    if isinstance(node, ir.Apply):
        return ir.Map(Piecewise((0, sympy.Eq(ir.slot(0), 0)), (1, True)), (node,)), labels
    assert isinstance(node, ir.Map)
    argument = _sign_argument(node.expression)
    if argument is None:
        return None
    indicator = Piecewise((0, argument < 0), (1, True))
    return ir.Map(*ir.used_slots(indicator, node.arguments)), labels


def _sign_argument(expression: sympy.Expr) -> sympy.Expr | None:
    """Return u for an expression c (1 + sign(u)); None for others."""
    number, function = expression.as_coeff_Add()
    if number == 0:
        return None
    ratio = function / number
    if isinstance(ratio, sympy.sign):
        return ratio.args[0]
    return -(-ratio).args[0] if isinstance(-ratio, sympy.sign) else None


@lru_cache(maxsize=65536)
def _has_pole(node: ir.Node) -> bool:
    """Return whether entries may be infinite at finite inputs, as far as powers and logarithms show
    it."""
    is_pole = isinstance(node, ir.Map) and _has_poles(node.expression)
    return is_pole or any(map(_has_pole, node.children))


def _has_poles(expression: sympy.Expr) -> bool:
    return expression.has(sympy.log, xlogy) or not all(
        power.exp.is_integer and power.exp.is_nonnegative for power in expression.atoms(sympy.Pow)
    )


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
