"""det(A) A⁻¹ as the adjugate of A, in kernels: it has a value for singular A, too. So has its
derivative, although each of its two terms det(A) A⁻¹ ⊗ A⁻¹ has none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, islice
from typing import TypeGuard

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.graph import transformed
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.operations.adjugate import (
    ADJUGATE,
    ADJUGATE_DERIVATIVE,
    ADJUGATE_FACTORS,
    ADJUGATE_JACOBIAN,
)
from derivatrix.compiler.operations.determinant import DETERMINANT
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.simplify import MAX_COMPARED_FACTORS, MAX_EXPANDED_TERMS, simplify

STRUCTURES_WITHOUT_ADJUGATE = frozenset({"spd", "orthogonal", "lower", "upper"})
"""Structures of matrices that are invertible, or whose det(A) and A⁻¹ are cheap."""
MAX_DENSE_ROWS = 3
"""Most rows of matrices whose few second derivatives are written out."""


def with_adjugates(roots: Sequence[ir.Node]) -> list[ir.Node]:
    """Replace det(A)ᵏ and up to k factors A⁻¹ by adj(A), and det(A) (A⁻¹[a,b] A⁻¹[c,d] - A⁻¹[a,d]
    A⁻¹[c,b]) by the derivative of adj(A); further factors A⁻¹ stay."""
    for rule in (_with_derivatives, _with_adjugate):
        roots = transformed(roots, rule)
    return [*roots]


def with_adjugate_factors(roots: Sequence[ir.Node]) -> list[ir.Node]:
    """Apply `with_adjugates`, and factor large derivatives of adj(A) by A."""
    return transformed(with_adjugates(roots), _factored)


def _factored(node: ir.Node) -> ir.Node:
    """Write all partial derivatives of adj(A) by the outputs of `ADJUGATE_FACTORS`."""
    if not _is(node, ADJUGATE_JACOBIAN):
        return node
    rows = node.shape[-1]
    if rows.is_Integer and rows <= MAX_DENSE_ROWS:
        return node
    d, b, p, u, v = (
        ir.Apply(ADJUGATE_FACTORS, node.arguments, node.stack, output=output) for output in range(5)
    )
    stack = range(len(node.stack))
    products = [
        (1, [(d, ""), (b, "ij"), (b, "lk")]),
        (-1, [(d, ""), (b, "ik"), (b, "lj")]),
        (1, [(v, "ip"), (u, "jp"), (p, "pq"), (u, "kq"), (v, "lq")]),
        (-1, [(v, "ip"), (u, "jq"), (p, "pq"), (u, "kp"), (v, "lq")]),
    ]
    terms = (
        ir.einsum([(factor, (*stack, *axes)) for factor, axes in factors], (*stack, *"ijkl"), sign)
        for sign, factors in products
    )
    return ir.Sum(tuple(terms), node.shape)


@dataclass(frozen=True)
class _Occurrence:
    """The positions of all factors A⁻¹ of a product and of one det(A)ᵏ, and the sum of all such
    k."""

    product: Product
    inverses: tuple[int, ...]
    determinant: int
    power: sympy.Expr

    @property
    def inverse(self) -> ir.Apply:
        node = self.product.factors[self.inverses[0]][0]
        assert isinstance(node, ir.Apply)
        return node

    def labels(self, place: int) -> tuple[int, ...]:
        return self.product.factors[place][1]

    def cofactor(self, *places: int) -> Product:
        """Return the product without some inverses, and with one factor det(A) less."""
        product = self.product.without(self.determinant, *places)
        base, power = ir.power_of(self.product.factors[self.determinant][0])
        if power == 1:
            return product
        lower = base if power == 2 else ir.Map(ir.slot(0) ** (power - 1), (base,))
        return product.times((lower, self.labels(self.determinant)))


def _occurrences(product: Product) -> Iterator[_Occurrence]:
    """Yield A⁻¹ and det(A)ᵏ, for whole k > 0, of matrices A that may be singular."""
    determinants: dict[tuple[ir.Apply, tuple[int, ...]], dict[int, sympy.Expr]] = {}
    for place, (factor, labels) in enumerate(product.factors):
        base, power = ir.power_of(factor)
        if _is(base, DETERMINANT) and power.is_Integer and power > 0:
            determinants.setdefault((base, labels), {})[place] = power
    for (base, stacked), powers in determinants.items():
        inverses = tuple(
            place
            for place, (node, labels) in enumerate(product.factors)
            if _is(node, INVERSE)
            and (base.arguments, base.stack) == (node.arguments, node.stack)
            and stacked == labels[:-2]
        )
        if inverses and not facts(base.arguments[0][0]) & STRUCTURES_WITHOUT_ADJUGATE:
            yield _Occurrence(product, inverses, min(powers), sympy.Add(*powers.values()))


def _with_adjugate(node: ir.Node) -> ir.Node:
    for occurrence in _occurrences(Product.of(node)) if isinstance(node, ir.Einsum) else ():
        if len(occurrence.inverses) <= occurrence.power:
            place = occurrence.inverses[0]
            adjugate = ir.Apply(ADJUGATE, occurrence.inverse.arguments, occurrence.inverse.stack)
            product = occurrence.cofactor(place).times((adjugate, occurrence.labels(place)))
            return _with_adjugate(product.node)
    return node


def _with_derivatives(total: ir.Node) -> ir.Node:
    """Combine terms of a sum that differ by sign and by exchanged columns of two inverses."""
    if not isinstance(total, ir.Sum):
        return total
    terms = [*islice(_multiplied_out(total), MAX_EXPANDED_TERMS + 1)]
    if len(terms) > MAX_EXPANDED_TERMS or _with_one_pair_combined(terms) is None:
        terms = [*total.terms]
    while (combined := _with_one_pair_combined(terms)) is not None:
        terms = combined
    return terms[0] if len(terms) == 1 else ir.Sum(tuple(terms), total.shape)


def _multiplied_out(node: ir.Node) -> Iterator[ir.Node]:
    """Yield the terms of a sum, and of the sums with inverses in its products."""
    if isinstance(node, ir.Sum):
        for term in node.terms:
            yield from _multiplied_out(term)
        return
    product = _spliced(Product.of(node)) if isinstance(node, ir.Einsum) else None
    for place, (factor, _) in enumerate(product.factors if product else ()):
        if isinstance(factor, ir.Sum) and any(
            _is(t, INVERSE) or _has_inverse_or_determinant(t) for t in factor.terms
        ):
            assert product is not None
            for term in factor.terms:
                yield from _multiplied_out(product.with_factor(place, term).node)
            return
    yield node


def _with_one_pair_combined(terms: Sequence[ir.Node]) -> list[ir.Node] | None:
    """Combine two terms det(A) A⁻¹ ⊗ A⁻¹ into one derivative of adj(A); None if there are none."""
    products = {
        place: _spliced(Product.of(term))
        for place, term in enumerate(terms)
        if isinstance(term, ir.Einsum)
    }
    pairs = {place: pairs for place, product in products.items() if (pairs := [*_pairs(product)])}
    if len(pairs) < 2:
        return None
    places = {_with_unit_coefficient(products[place]): place for place in pairs}
    for place, candidates in pairs.items():
        for pair in candidates:
            partner = places.get(_with_unit_coefficient(pair.exchanged))
            if partner is None or partner == place:
                continue
            coefficients = products[place].coefficient, products[partner].coefficient
            shared = _shared(*coefficients)
            if shared == 0:
                continue
            result = [term for i, term in enumerate(terms) if i not in (place, partner)]
            leftovers = {place: coefficients[0] - shared, partner: coefficients[1] + shared}
            result += [
                replace(products[i], coefficient=coefficient).node
                for i, coefficient in leftovers.items()
                if coefficient != 0
            ]
            return [*result, pair.derivative.scaled(shared / coefficients[0]).node]
    return None


def _shared(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    """Return the part of the coefficient `a` that occurs in `b` with the other sign."""
    if sympy.expand(a + b) == 0:
        return a
    if not (a.is_number and b.is_number) or a * b > 0:
        return sympy.S.Zero
    return sympy.sign(a) * sympy.Min(abs(a), abs(b))


def _with_unit_coefficient(product: Product) -> ir.Node:
    return simplify([replace(product, coefficient=sympy.S.One).node])[0]


def _spliced(product: Product) -> Product:
    """Splice in products with inverses or determinants, as long as the product is short."""
    for place, (factor, _) in enumerate(product.factors):
        if len(product.factors) <= MAX_COMPARED_FACTORS and _has_inverse_or_determinant(factor):
            return _spliced(product.inlined(place))
    return product


@lru_cache(maxsize=65536)
def _has_inverse_or_determinant(node: ir.Node) -> bool:
    return isinstance(node, ir.Einsum) and any(
        _is(factor, INVERSE)
        or _is(ir.power_of(factor)[0], DETERMINANT)
        or _has_inverse_or_determinant(factor)
        for factor, _ in node.factors
    )


@dataclass(frozen=True)
class _Pair:
    """det(A) A⁻¹[a,b] A⁻¹[c,d] in a product, with the labels of the `first` and `second` A⁻¹."""

    occurrence: _Occurrence
    places: tuple[int, int]
    first: tuple[int, ...]
    second: tuple[int, ...]

    @property
    def exchanged(self) -> Product:
        """The product with A⁻¹[a,d] A⁻¹[c,b] instead."""
        factors = list(self.occurrence.product.factors)
        first, second = self.first, self.second
        factors[self.places[0]] = self.occurrence.inverse, (*first[:-1], second[-1])
        factors[self.places[1]] = self.occurrence.inverse, (*second[:-1], first[-1])
        return replace(self.occurrence.product, factors=tuple(factors))

    @property
    def derivative(self) -> Product:
        """The product with the difference of both instead: the derivative of adj(A) along a matrix,
        where the other factors are one; else all partial derivatives."""
        inverse, cofactor = self.occurrence.inverse, self.occurrence.cofactor(*self.places)
        (*stack, a, b), (c, d) = self.first, self.second[-2:]
        terms = [(1, (a, b), (c, d)), (-1, (a, d), (c, b))]
        terms += [(sign, second, first) for sign, first, second in terms]
        for sign, (i, j), (k, m) in terms:
            parts = _split_matrix(cofactor, stack, m, k, {i, j})
            if parts is not None:
                direction, product = parts
                arguments = (inverse.arguments[0], (direction, tuple(range(len(stack)))))
                derivative = ir.Apply(ADJUGATE_DERIVATIVE, arguments, inverse.stack)
                return product.scaled(sympy.Integer(sign)).times((derivative, (*stack, i, j)))
        jacobian = ir.Apply(ADJUGATE_JACOBIAN, inverse.arguments, inverse.stack)
        return cofactor.times((jacobian, (*stack, a, b, d, c)))


def _pairs(product: Product) -> Iterator[_Pair]:
    for occurrence in _occurrences(product):
        symmetric = "symmetric" in facts(occurrence.inverse.arguments[0][0])
        for places in combinations(occurrence.inverses, 2):
            first, second = map(occurrence.labels, places)
            yield _Pair(occurrence, places, first, second)
            if symmetric:
                yield _Pair(occurrence, places, first, (*second[:-2], second[-1], second[-2]))


def _split_matrix(
    product: Product, stack: Sequence[int], row: int, column: int, outer: set[int]
) -> tuple[ir.Node, Product] | None:
    """Split off the factors linked with the summed labels `row` and `column`, as a matrix. Returns
    it and the product of the other factors; None where both have further labels in common."""
    if row == column:
        return None
    reached, inner = {row, column}, list[int]()
    while linked := [
        place
        for place, (_, labels) in enumerate(product.factors)
        if place not in inner and reached & {*labels}
    ]:
        inner += linked
        reached |= {label for i in linked for label in product.factors[i][1]} - {*stack}
    if reached & ({*product.output} | outer):
        return None
    factors: list[ir.Factor] = [product.factors[place] for place in sorted(inner)]
    sizes = {label: product.sizes[label] for label in (*stack, *reached)}
    matrix = ir.einsum(factors, (*stack, row, column), sizes=sizes)
    outer_sizes = {n: size for n, size in product.sizes.items() if n not in reached}
    return simplify([matrix])[0], replace(product.without(*inner), sizes=outer_sizes)


def _is(node: ir.Node, operation: object) -> TypeGuard[ir.Apply]:
    """Return whether a node is a result of an operation."""
    return isinstance(node, ir.Apply) and node.operation is operation
