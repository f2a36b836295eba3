"""det(A) A⁻¹ as the adjugate of A, in kernels: where A is singular it has a value, too. So has its
derivative, of which each of the two terms det(A) A⁻¹ ⊗ A⁻¹ has none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import TypeGuard

import sympy

from derivatrix.compiler.ir.graph import transformed
from derivatrix.compiler.ir.nodes import (
    Apply,
    Einsum,
    Factor,
    Map,
    Node,
    Sum,
    einsum,
    power_of,
    slot,
)
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
from derivatrix.compiler.simplify import COMPARED_FACTORS, EXPANDED_TERMS, simplify

REGULAR = frozenset({"spd", "orthogonal", "lower", "upper"})
"""Of these det(A) and A⁻¹ are as good: they have inverses, or det(A) and A⁻¹ are quicker found."""
MAX_DENSE_ROWS = 3
"""Matrices with so many rows have few enough second derivatives to be written out."""


def with_adjugates(roots: Sequence[Node]) -> list[Node]:
    """The nodes with det(A)ᵏ and up to k factors A⁻¹ by adj(A), and with the derivative of adj(A)
    for det(A) (A⁻¹[a,b] A⁻¹[c,d] - A⁻¹[a,d] A⁻¹[c,b]); further factors A⁻¹ are left."""
    for rule in (_with_derivatives, _with_adjugate):
        roots = transformed(roots, rule)
    return [*roots]


def with_adjugate_factors(roots: Sequence[Node]) -> list[Node]:
    """The nodes `with_adjugates`, and with the derivative of adj(A) by A as products of matrices,
    unless it is small."""
    return transformed(with_adjugates(roots), _factored)


def _factored(node: Node) -> Node:
    """All partial derivatives of adj(A) as the products that `ADJUGATE_FACTORS` is for."""
    if not _is(node, ADJUGATE_JACOBIAN):
        return node
    rows = node.shape[-1]
    if rows.is_Integer and rows <= MAX_DENSE_ROWS:
        return node
    d, b, p, u, v = (
        Apply(ADJUGATE_FACTORS, node.arguments, node.stack, output=output) for output in range(5)
    )
    stack = range(len(node.stack))
    products = [
        (1, [(d, ""), (b, "ij"), (b, "lk")]),
        (-1, [(d, ""), (b, "ik"), (b, "lj")]),
        (1, [(v, "ip"), (u, "jp"), (p, "pq"), (u, "kq"), (v, "lq")]),
        (-1, [(v, "ip"), (u, "jq"), (p, "pq"), (u, "kp"), (v, "lq")]),
    ]
    terms = (
        einsum([(factor, (*stack, *axes)) for factor, axes in factors], (*stack, *"ijkl"), sign)
        for sign, factors in products
    )
    return Sum(tuple(terms), node.shape)


@dataclass(frozen=True)
class _Found:
    """In a product the places of all factors A⁻¹ and of one det(A)ᵏ, and the sum of all such k."""

    product: Product
    inverses: tuple[int, ...]
    determinant: int
    power: sympy.Expr

    @property
    def inverse(self) -> Apply:
        node = self.product.factors[self.inverses[0]][0]
        assert isinstance(node, Apply)
        return node

    def labels(self, place: int) -> tuple[int, ...]:
        return self.product.factors[place][1]

    def rest(self, *places: int) -> Product:
        """The product without the inverses at some places, and with one factor det(A) less."""
        left = self.product.without(self.determinant, *places)
        base, power = power_of(self.product.factors[self.determinant][0])
        if power == 1:
            return left
        lower = base if power == 2 else Map(slot(0) ** (power - 1), (base,))
        return left.times((lower, self.labels(self.determinant)))


def _found(product: Product) -> Iterator[_Found]:
    """A⁻¹ and det(A)ᵏ, for whole k > 0, of matrices A that may be singular."""
    determinants: dict[tuple[Apply, tuple[int, ...]], dict[int, sympy.Expr]] = {}
    for place, (factor, labels) in enumerate(product.factors):
        base, power = power_of(factor)
        if _is(base, DETERMINANT) and power.is_Integer and power > 0:
            determinants.setdefault((base, labels), {})[place] = power
    for (base, stacked), powers in determinants.items():
        inverses = tuple(
            one
            for one, (node, labels) in enumerate(product.factors)
            if _is(node, INVERSE)
            and (base.arguments, base.stack) == (node.arguments, node.stack)
            and stacked == labels[:-2]
        )
        if inverses and not facts(base.arguments[0][0]) & REGULAR:
            yield _Found(product, inverses, min(powers), sympy.Add(*powers.values()))


def _with_adjugate(node: Node) -> Node:
    for found in _found(Product.of(node)) if isinstance(node, Einsum) else ():
        if len(found.inverses) <= found.power:
            one = found.inverses[0]
            adjugate = Apply(ADJUGATE, found.inverse.arguments, found.inverse.stack)
            return _with_adjugate(found.rest(one).times((adjugate, found.labels(one))).node)
    return node


def _with_derivatives(total: Node) -> Node:
    """In a sum, pairs of terms that differ by the sign, and by columns of two inverses exchanged,
    as one."""
    if not isinstance(total, Sum):
        return total
    terms = [*islice(_multiplied_out(total), EXPANDED_TERMS + 1)]
    if len(terms) > EXPANDED_TERMS or _paired(terms) is None:
        terms = [*total.terms]
    while (paired := _paired(terms)) is not None:
        terms = paired
    return terms[0] if len(terms) == 1 else Sum(tuple(terms), total.shape)


def _multiplied_out(node: Node) -> Iterator[Node]:
    """The terms of a sum, and of the sums with inverses in its products."""
    if isinstance(node, Sum):
        for term in node.terms:
            yield from _multiplied_out(term)
        return
    product = _spliced(Product.of(node)) if isinstance(node, Einsum) else None
    for place, (factor, _) in enumerate(product.factors if product else ()):
        if isinstance(factor, Sum) and any(_is(t, INVERSE) or _holds(t) for t in factor.terms):
            assert product is not None
            for term in factor.terms:
                yield from _multiplied_out(product.with_factor(place, term).node)
            return
    yield node


def _paired(terms: Sequence[Node]) -> list[Node] | None:
    products = {
        place: _spliced(Product.of(term))
        for place, term in enumerate(terms)
        if isinstance(term, Einsum)
    }
    found = {place: pairs for place, own in products.items() if (pairs := [*_pairs(own)])}
    if len(found) < 2:
        return None
    spelled = {_spelled(products[place]): place for place in found}
    for place, pairs in found.items():
        for pair in pairs:
            other = spelled.get(_spelled(pair.exchanged))
            if other is None or other == place:
                continue
            sizes = products[place].coefficient, products[other].coefficient
            shared = _shared(*sizes)
            if shared == 0:
                continue
            rest = [own for each, own in enumerate(terms) if each not in (place, other)]
            left = {place: sizes[0] - shared, other: sizes[1] + shared}
            rest += [
                replace(products[each], coefficient=size).node
                for each, size in left.items()
                if size != 0
            ]
            return [*rest, pair.derivative.scaled(shared / sizes[0]).node]
    return None


def _shared(one: sympy.Expr, other: sympy.Expr) -> sympy.Expr:
    """How often a term is there with one sign and another with the other sign."""
    if sympy.expand(one + other) == 0:
        return one
    if not (one.is_number and other.is_number) or one * other > 0:
        return sympy.S.Zero
    return sympy.sign(one) * sympy.Min(abs(one), abs(other))


def _spelled(product: Product) -> Node:
    return simplify([replace(product, coefficient=sympy.S.One).node])[0]


def _spliced(product: Product) -> Product:
    """The product with the products in it spliced in that have inverses or determinants, as long as
    it is short."""
    for place, (factor, _) in enumerate(product.factors):
        if len(product.factors) <= COMPARED_FACTORS and _holds(factor):
            return _spliced(product.inlined(place))
    return product


@lru_cache(maxsize=65536)
def _holds(node: Node) -> bool:
    return isinstance(node, Einsum) and any(
        _is(factor, INVERSE) or _is(power_of(factor)[0], DETERMINANT) or _holds(factor)
        for factor, _ in node.factors
    )


@dataclass(frozen=True)
class _Pair:
    """det(A) A⁻¹[a,b] A⁻¹[c,d] in a product, with the labels of the `first` and `second` A⁻¹."""

    found: _Found
    places: tuple[int, int]
    first: tuple[int, ...]
    second: tuple[int, ...]

    @property
    def exchanged(self) -> Product:
        """The product with A⁻¹[a,d] A⁻¹[c,b] instead."""
        factors = list(self.found.product.factors)
        one, two = self.first, self.second
        factors[self.places[0]] = self.found.inverse, (*one[:-1], two[-1])
        factors[self.places[1]] = self.found.inverse, (*two[:-1], one[-1])
        return replace(self.found.product, factors=tuple(factors))

    @property
    def derivative(self) -> Product:
        """The product with the difference of both: by one matrix that its rest is, if it is one."""
        inverse, rest = self.found.inverse, self.found.rest(*self.places)
        (*stack, a, b), (c, d) = self.first, self.second[-2:]
        both = [(1, (a, b), (c, d)), (-1, (a, d), (c, b))]
        both += [(sign, two, one) for sign, one, two in both]
        for sign, (i, j), (k, m) in both:
            moved = _closed(rest, stack, m, k, {i, j})
            if moved is not None:
                change, left = moved
                arguments = (inverse.arguments[0], (change, tuple(range(len(stack)))))
                derivative = Apply(ADJUGATE_DERIVATIVE, arguments, inverse.stack)
                return left.scaled(sympy.Integer(sign)).times((derivative, (*stack, i, j)))
        jacobian = Apply(ADJUGATE_JACOBIAN, inverse.arguments, inverse.stack)
        return rest.times((jacobian, (*stack, a, b, d, c)))


def _pairs(product: Product) -> Iterator[_Pair]:
    for found in _found(product):
        symmetric = "symmetric" in facts(found.inverse.arguments[0][0])
        for position, one in enumerate(found.inverses):
            for two in found.inverses[position + 1 :]:
                first, second = found.labels(one), found.labels(two)
                yield _Pair(found, (one, two), first, second)
                if symmetric:
                    turned = (*second[:-2], second[-1], second[-2])
                    yield _Pair(found, (one, two), first, turned)


def _closed(
    rest: Product, stack: Sequence[int], row: int, column: int, others: set[int]
) -> tuple[Node, Product] | None:
    """The factors that have a row and a column summed, as a matrix, and the product of the others;
    None where these have further labels in common."""
    if row == column:
        return None
    reached, inner = {row, column}, list[int]()
    while more := [
        place
        for place, (_, labels) in enumerate(rest.factors)
        if place not in inner and reached & {*labels}
    ]:
        inner += more
        reached |= {label for place in more for label in rest.factors[place][1]} - {*stack}
    if reached & ({*rest.output} | others):
        return None
    factors: list[Factor] = [rest.factors[place] for place in sorted(inner)]
    output, sizes = (*stack, row, column), rest.sizes
    change = einsum(factors, output, sizes={own: sizes[own] for own in (*stack, *reached)})
    kept = {own: size for own, size in sizes.items() if own not in reached}
    return simplify([change])[0], replace(rest.without(*inner), sizes=kept)


def _is(node: Node, operation: object) -> TypeGuard[Apply]:
    return isinstance(node, Apply) and node.operation is operation
