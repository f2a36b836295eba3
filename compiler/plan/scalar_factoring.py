"""Sums of products by fewer multiplications: common factors are taken out of sums, and factors
that several products share are multiplied once.

Greedy: the commonest factor first; see A. Hosangadi, F. Fallah and R. Kastner, Optimizing
polynomial expressions by algebraic factorization and common subexpression elimination (2006).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

import sympy

from derivatrix.compiler.ir.scalar_values import Scalars

MAX_COST_RATIO = 0.75
"""The largest ratio of new to old operations for which values are factored: a factor must be known
before the sum is multiplied by it, so chains of dependent operations become longer. With 5 % fewer
operations, the gradient of log det and trace for 4 by 4 matrices took 1.05 times as long."""
DIVISION_OPS = 8
"""Cost of a division or a function, in multiplications."""

Term = tuple[sympy.Expr, tuple[int, ...]]
"""A coefficient and the numbers of the factors; a divisor has -1 - its number."""


def factored(scalars: Scalars, values: Sequence[int]) -> list[int]:
    """Compute the same values by fewer operations, if these are few enough."""
    new_values = _paired(scalars, _Factoring(scalars, values).values)
    if _cost(scalars, new_values) < MAX_COST_RATIO * _cost(scalars, values):
        return new_values
    return list(values)


def with_operands(values: Iterable[int], children: Callable[[int], Iterable[int]]) -> list[int]:
    """List `values` and all values that they are computed from, operands first. children: the
    operands of a value, which have smaller numbers than the value."""
    reached: set[int] = set()
    pending = list(values)
    while pending:
        number = pending.pop()
        if number not in reached:
            reached.add(number)
            pending += children(number)
    return sorted(reached)


def reachable(scalars: Scalars, values: Sequence[int]) -> list[int]:
    """List values and all values that they are computed from, operands first."""
    return with_operands(values, lambda number: scalars.entries[number][2])


def _cost(scalars: Scalars, values: Sequence[int]) -> int:
    def cost_of(operator: str, children: tuple[int, ...]) -> int:
        if operator in ("add", "mul"):
            return len(children) - 1
        return DIVISION_OPS if children and operator not in ("entry", "neg") else 0

    entries = (scalars.entries[number] for number in reachable(scalars, values))
    return sum(cost_of(operator, children) for operator, _, children in entries)


class _Factoring:
    """Common factors are taken out of sums; `values` are the results."""

    def __init__(self, scalars: Scalars, values: Sequence[int]) -> None:
        self._scalars = scalars
        order = reachable(scalars, values)
        uses = Counter(child for number in order for child in scalars.entries[number][2])
        uses.update(values)
        self._unopened: set[int] = set()  # products with several readers, computed once
        rebuilt: dict[int, int] = {}
        for number in order:
            operator, _, children = scalars.entries[number]
            rebuilt[number] = self._rebuilt(number, [rebuilt[child] for child in children])
            if uses[number] > 1 and operator in ("mul", "div", "neg"):
                self._unopened.add(rebuilt[number])
        self.values = [rebuilt[number] for number in values]

    def _rebuilt(self, number: int, operands: list[int]) -> int:
        """Rebuild a value on new operands; take common factors out of a sum."""
        match self._scalars.entries[number][0]:
            case "add":
                return self._sum([self._term(part) for part in operands])
            case "mul":
                return self._scalars.product(operands)
            case "neg":
                return self._scalars.product(operands, sympy.S.NegativeOne)
            case operator if operands:
                return self._scalars.operate(operator, *operands)
        return number

    def _term(self, number: int) -> Term:
        """Split a value into a coefficient and factors."""
        operator, payload, children = self._scalars.entries[number]
        if number not in self._unopened:
            match operator:
                case "number":
                    return sympy.sympify(payload), ()
                case "neg":
                    coefficient, factors = self._term(children[0])
                    return -coefficient, factors
                case "mul":
                    terms = [self._factor(child) for child in children]
                    coefficient = sympy.Mul(*(c for c, _ in terms))
                    return coefficient, tuple(f for _, factors in terms for f in factors)
                case "div":
                    coefficient, factors = self._term(children[0])
                    below = self._scalars.factors(children[1])
                    return coefficient, (*factors, *(-1 - factor for factor in below))
        return sympy.S.One, (number,)

    def _factor(self, number: int) -> Term:
        is_number = self._scalars.entries[number][0] == "number"
        return self._term(number) if is_number else (sympy.S.One, (number,))

    def _product(self, coefficient: sympy.Expr, factors: Iterable[int]) -> int:
        numbers = list(factors)
        value = self._scalars.product([factor for factor in numbers if factor >= 0], coefficient)
        below = [-1 - factor for factor in numbers if factor < 0]
        if not below:
            return value
        return self._scalars.product(
            [self._scalars.operate("div", value, self._scalars.product(below))]
        )

    def _sum(self, terms: Sequence[Term]) -> int:
        """Sum terms; take out the factor or number that most of them have, then go on with the
        sum within and the other terms."""
        counts = Counter(factor for _, factors in terms for factor in {*factors})
        magnitudes = Counter(abs(c) for c, _ in terms if c.is_number and abs(c) != 1)
        factor_count, common = max(((n, factor) for factor, n in counts.items()), default=(0, 0))
        number_count = max(magnitudes.values(), default=0)
        if max(factor_count, number_count) < 2:
            return self._scalars.sum([self._product(*term) for term in terms])
        if number_count > factor_count:
            number = min((c for c, n in magnitudes.items() if n == number_count), key=float)
            signs = {number: sympy.S.One, -number: sympy.S.NegativeOne}
            inside = [(signs[c], factors) for c, factors in terms if c in signs]
            other_terms = [(c, factors) for c, factors in terms if c not in signs]
            product = self._scalars.product([self._sum(inside)], number)
        else:
            inside = [(c, _without(factors, common)) for c, factors in terms if common in factors]
            other_terms = [(c, factors) for c, factors in terms if common not in factors]
            coefficient, factors = self._term(self._sum(inside))
            product = self._product(coefficient, (*factors, common))
        return self._scalars.sum([product, self._sum(other_terms)]) if other_terms else product


def _without(factors: tuple[int, ...], factor: int) -> tuple[int, ...]:
    place = factors.index(factor)
    return factors[:place] + factors[place + 1 :]


def _paired(scalars: Scalars, values: Sequence[int]) -> list[int]:
    """Multiply pairs of factors that several products have once."""
    order = reachable(scalars, values)
    products = {n: list(scalars.entries[n][2]) for n in order if scalars.entries[n][0] == "mul"}
    pairs: list[tuple[int, int]] = []
    while (pair := _commonest(scalars, products.values())) is not None:
        pairs.append(pair)
        for factors in products.values():
            while _contains_pair(factors, pair):
                factors.remove(pair[0])
                factors.remove(pair[1])
                factors.append(-len(pairs))
    rebuilt: dict[int, int] = {}

    def value(factor: int) -> int:
        if factor not in rebuilt:
            rebuilt[factor] = scalars.operate("mul", *map(value, pairs[-1 - factor]))
        return rebuilt[factor]

    for number in order:
        operator, _, children = scalars.entries[number]
        if number in products:
            factors = [value(factor) for factor in products[number]]
            rebuilt[number] = scalars.operate("mul", *factors) if len(factors) > 1 else factors[0]
        else:
            operands = [rebuilt[child] for child in children]
            rebuilt[number] = scalars.operate(operator, *operands) if operands else number
    return [rebuilt[number] for number in values]


def _commonest(scalars: Scalars, products: Iterable[Sequence[int]]) -> tuple[int, int] | None:
    """Find the pair of factors that most products have; None if no two products share a pair. Two
    small factors are no pair: their product may underflow where the whole product does not."""
    counts = Counter(pair for factors in products for pair in {*combinations(sorted(factors), 2)})
    allowed = ((n, p) for p, n in counts.items() if not all(scalars.degree(f) < 0 for f in p))
    count, pair = max(allowed, default=(0, None))
    return pair if count > 1 else None


def _contains_pair(factors: list[int], pair: tuple[int, int]) -> bool:
    first, second = pair
    return first in factors and factors.count(second) > (first == second)
