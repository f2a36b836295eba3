"""Products with powers of denominators, x y⁻², as products with lower powers, x y⁻¹ y⁻¹.

Where y⁻² is stored for several readers, it may be beyond the range of numbers though x y⁻² is not.
So may a sum of such quotients that is a factor of a product: the denominators that all its terms
have are made factors of the product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from math import floor
from operator import and_

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.graph import rebuilt
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.scalar_values import divided_powers
from derivatrix.compiler.plan.degrees import degree
from derivatrix.compiler.simplify import simplify
from derivatrix.compiler.simplify.squares import slots_of

MAX_DEGREE = -2
"""Highest degree of factors whose denominators are taken out: entries of degree -1 are within the
range of numbers where those of degree 1 are."""

MAX_FACTORS = 8
"""Most factors y⁻¹ into which a power is split: equal ones are found in other terms."""


def with_divided_powers(roots: Sequence[ir.Node]) -> list[ir.Node]:
    """Write negative powers in products as products of powers to divide by in turn."""
    order = ir.topological(roots)
    factors = {child for node in order if isinstance(node, ir.Einsum) for child in node.children}
    new: dict[ir.Node, ir.Node] = {}
    for node in order:
        copy = rebuilt(node, new)
        if isinstance(copy, ir.Einsum) and len(copy.factors) > 1:
            product = _split_quotients(Product.of(copy))
            copy = product.node if product.factors != copy.factors else copy
        elif isinstance(copy, ir.Sum) and node in factors and degree(copy) <= MAX_DEGREE:
            copy = _with_common_denominator(copy)
        new[node] = copy
    return [new[root] for root in roots]


def _split_quotients(product: Product) -> Product:
    """Split the quotients among the factors of a product; splice in products of low degree."""
    for place, (factor, labels) in reversed([*enumerate(product.factors)]):
        if isinstance(factor, ir.Einsum) and not factor.contracted and degree(factor) <= MAX_DEGREE:
            product = product.inlined(place)
        elif isinstance(factor, ir.Map) and len(parts := _parts(factor.expression)) > 1:
            axes = [axis for axis, size in enumerate(factor.shape) if size != 1]
            labels = tuple(labels[axis] for axis in axes)
            bases: Sequence[ir.Node] = factor.arguments
            if len(axes) < factor.ndim:
                bases = simplify([ir.einsum([(base, range(base.ndim))], axes) for base in bases])
            nodes = (_applied(*ir.used_slots(part, bases)) for part in parts)
            product = product.without(place).times(*((node, labels) for node in nodes))
    for place, (factor, _) in enumerate(product.factors):
        if isinstance(factor, ir.Map):
            for part in sympy.Mul.make_args(factor.expression):
                if part.is_Add:
                    return _with_divided_terms(product, place, part)
    return product


def _applied(expression: sympy.Expr, arguments: tuple[ir.Node, ...]) -> ir.Node:
    return arguments[0] if expression == ir.slot(0) else ir.Map(expression, arguments)


def _with_divided_terms(product: Product, place: int, total: sympy.Add) -> Product:
    """Divide the terms of a sum in the factor at a place by powers among the product's other
    factors: a (r² s² + t) s⁻¹ s⁻¹ becomes a (r² + t s⁻²)."""
    factor, labels = product.factors[place]
    assert isinstance(factor, ir.Map)
    terms, divisor_places = total.args, list[int]()
    for slot, argument in slots_of(factor).items():
        divisor = ir.Map(1 / ir.slot(0), (argument,)), labels
        places = [place for place, f in enumerate(product.factors) if f == divisor]
        powers = [term.as_powers_dict().get(slot, sympy.S.Zero) for term in terms]
        count = min(max((int(p) for p in powers if p.is_Integer), default=0), len(places))
        if count > 1:
            terms = tuple(term / slot**count for term in terms)
            divisor_places += places[:count]
    expression = factor.expression.xreplace({total: sympy.Add(*terms)})
    quotient = ir.Map(*ir.used_slots(expression, factor.arguments))
    return product.with_factor(place, quotient).without(*divisor_places)


def _with_common_denominator(total: ir.Sum) -> ir.Node:
    """Write a sum as the product of the powers that all terms are divided by and another sum."""
    axes = tuple(range(total.ndim))
    products = [
        _split_quotients(
            Product.of(term) if isinstance(term, ir.Einsum) else Product.of_factor(term)
        )
        for term in total.terms
    ]
    first, *others = [
        Counter(f for f in product.factors if degree(f[0]) < 0 and {*f[1]} <= {*axes})
        for product in products
    ]
    common = reduce(and_, others, first)
    if common.total() < 2:  # quotients by one number are within range where the number is
        return total
    remaining = degree(total) - sum(degree(f) * count for (f, _), count in common.items())
    excess = max(0, floor(remaining) - 1)  # divisors that keep the sum's degree below 2
    common = Counter([*common.elements()][excess:])
    terms = []
    for product in products:
        places = []
        for factor, count in common.items():
            places += [place for place, f in enumerate(product.factors) if f == factor][:count]
        terms.append(product.without(*places).node)
    inner = ir.Sum(tuple(terms), total.shape)
    return ir.einsum([*common.elements(), (inner, axes)], axes)


def _parts(expression: sympy.Expr) -> list[sympy.Expr]:
    """Split a quotient by two powers or more, which may be 0 under a condition, into factors that
    are not much smaller or larger than the quotient; other expressions stay whole."""
    if isinstance(expression, sympy.Piecewise):
        (zero, condition), *pieces = [piece.args for piece in expression.args]
        if zero != 0 or len(pieces) > 1:
            return [expression]
        first, *others = _parts(pieces[0][0])
        tested = [part.free_symbols & condition.free_symbols for part in others]
        return [
            sympy.Piecewise((0, condition), (part, True)) if is_tested else part
            for part, is_tested in [(first, True), *zip(others, tested, strict=True)]
        ]
    numerator, divisors = sympy.S.One, list[sympy.Expr]()
    for factor in sympy.Mul.make_args(expression):
        base, exponent = factor.as_base_exp()
        if not (exponent.is_number and exponent.is_negative and base.free_symbols):
            numerator *= factor
        elif exponent.is_Integer and -exponent <= MAX_FACTORS:
            divisors += [base] * -int(exponent)
        else:
            divisors += [base**part for part in divided_powers(-exponent)]
    if len(divisors) < 2:
        return [expression]
    if not numerator.free_symbols:
        numerator /= divisors.pop(0)
    return [numerator, *(1 / divisor for divisor in divisors)]
