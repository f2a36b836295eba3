"""Sums of products by fewer multiplications: what terms have in common is taken out of them, and
what products have in common is multiplied once.

Greedy: the commonest factor first; see A. Hosangadi, F. Fallah and R. Kastner, Optimizing
polynomial expressions by algebraic factorization and common subexpression elimination (2006).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

import sympy

from derivatrix.compiler.ir.scalar_values import Scalars

ENOUGH = 0.75
"""The part of the operations that may be left at most, or else nothing is taken out: what is has to
be known before, and lengthens chains of operations."""
DIVISION = 8
"""The weight of a division, or a function."""

Term = tuple[sympy.Expr, tuple[int, ...]]
"""A coefficient and the numbers of the factors, of one that divides -1 - number."""


def factored(scalars: Scalars, values: Sequence[int]) -> list[int]:
    """The same values made by fewer operations, if many can be saved."""
    fewer = _paired(scalars, _Factoring(scalars, values).values)
    if _cost(scalars, fewer) < ENOUGH * _cost(scalars, values):
        return fewer
    return list(values)


def made_of(values: Iterable[int], children: Callable[[int], Iterable[int]]) -> list[int]:
    """What values are made of, themselves too: `children` are the parts of one, which all have
    smaller numbers, so that parts come before what is made of them."""
    found: set[int] = set()
    pending = list(values)
    while pending:
        number = pending.pop()
        if number not in found:
            found.add(number)
            pending += children(number)
    return sorted(found)


def _below(scalars: Scalars, values: Sequence[int]) -> list[int]:
    return made_of(values, lambda number: scalars.entries[number][2])


def _cost(scalars: Scalars, values: Sequence[int]) -> int:
    def own(operator: str, children: tuple[int, ...]) -> int:
        if operator in ("add", "mul"):
            return len(children) - 1
        return DIVISION if children and operator not in ("entry", "neg") else 0

    entries = (scalars.entries[number] for number in _below(scalars, values))
    return sum(own(operator, children) for operator, _, children in entries)


class _Factoring:
    """`values`: the same with common factors taken out of sums."""

    def __init__(self, scalars: Scalars, values: Sequence[int]) -> None:
        self._scalars = scalars
        order = _below(scalars, values)
        uses = Counter(child for number in order for child in scalars.entries[number][2])
        uses.update(values)
        self._kept: set[int] = set()  # products that are read more than once stay what they are
        made: dict[int, int] = {}
        for number in order:
            operator, _, children = scalars.entries[number]
            made[number] = self._made(number, [made[child] for child in children])
            if uses[number] > 1 and operator in ("mul", "div", "neg"):
                self._kept.add(made[number])
        self.values = [made[number] for number in values]

    def _made(self, number: int, parts: list[int]) -> int:
        """A value on other parts; sums with common factors taken out."""
        match self._scalars.entries[number][0]:
            case "add":
                return self._sum([self._term(part) for part in parts])
            case "mul":
                return self._scalars.product(parts)
            case "neg":
                return self._scalars.product(parts, sympy.S.NegativeOne)
            case operator if parts:
                return self._scalars.operate(operator, *parts)
        return number

    def _term(self, number: int) -> Term:
        """A value as a coefficient times factors."""
        operator, payload, children = self._scalars.entries[number]
        if number not in self._kept:
            match operator:
                case "number":
                    return sympy.sympify(payload), ()
                case "neg":
                    coefficient, factors = self._term(children[0])
                    return -coefficient, factors
                case "mul":
                    terms = [self._factor(child) for child in children]
                    coefficient = sympy.Mul(*(own for own, _ in terms))
                    return coefficient, tuple(factor for _, own in terms for factor in own)
                case "div":
                    coefficient, factors = self._term(children[0])
                    below = self._scalars.factors(children[1])
                    return coefficient, (*factors, *(-1 - factor for factor in below))
        return sympy.S.One, (number,)

    def _factor(self, number: int) -> Term:
        is_number = self._scalars.entries[number][0] == "number"
        return self._term(number) if is_number else (sympy.S.One, (number,))

    def _product(self, coefficient: sympy.Expr, factors: Iterable[int]) -> int:
        own = list(factors)
        value = self._scalars.product([factor for factor in own if factor >= 0], coefficient)
        below = [-1 - factor for factor in own if factor < 0]
        if not below:
            return value
        return self._scalars.product(
            [self._scalars.operate("div", value, self._scalars.product(below))]
        )

    def _sum(self, terms: Sequence[Term]) -> int:
        """The sum of terms, the factor that most of them have outside of brackets, and so on."""
        counts = Counter(factor for _, factors in terms for factor in {*factors})
        numbers = Counter(abs(c) for c, _ in terms if c.is_number and abs(c) != 1)
        count, common = max(((n, factor) for factor, n in counts.items()), default=(0, 0))
        most = max(numbers.values(), default=0)
        if max(count, most) < 2:
            return self._scalars.sum([self._product(*term) for term in terms])
        if most > count:
            number = min((each for each, n in numbers.items() if n == most), key=float)
            signs = {number: sympy.S.One, -number: sympy.S.NegativeOne}
            inside = [(signs[c], factors) for c, factors in terms if c in signs]
            rest = [(c, factors) for c, factors in terms if c not in signs]
            taken = self._scalars.product([self._sum(inside)], number)
        else:
            inside = [(c, _without(factors, common)) for c, factors in terms if common in factors]
            rest = [(c, factors) for c, factors in terms if common not in factors]
            coefficient, factors = self._term(self._sum(inside))
            taken = self._product(coefficient, (*factors, common))
        return self._scalars.sum([taken, self._sum(rest)]) if rest else taken


def _without(factors: tuple[int, ...], one: int) -> tuple[int, ...]:
    place = factors.index(one)
    return factors[:place] + factors[place + 1 :]


def _paired(scalars: Scalars, values: Sequence[int]) -> list[int]:
    """The same values; two factors that several products have are multiplied once."""
    order = _below(scalars, values)
    products = {n: list(scalars.entries[n][2]) for n in order if scalars.entries[n][0] == "mul"}
    pairs: list[tuple[int, int]] = []
    while (pair := _commonest(scalars, products.values())) is not None:
        pairs.append(pair)
        for factors in products.values():
            while _has(factors, pair):
                factors.remove(pair[0])
                factors.remove(pair[1])
                factors.append(-len(pairs))
    made: dict[int, int] = {}

    def value(factor: int) -> int:
        if factor not in made:
            made[factor] = scalars.operate("mul", *map(value, pairs[-1 - factor]))
        return made[factor]

    for number in order:
        operator, _, children = scalars.entries[number]
        if number in products:
            factors = [value(factor) for factor in products[number]]
            made[number] = scalars.operate("mul", *factors) if len(factors) > 1 else factors[0]
        else:
            parts = [made[child] for child in children]
            made[number] = scalars.operate(operator, *parts) if parts else number
    return [made[number] for number in values]


def _commonest(scalars: Scalars, products: Iterable[Sequence[int]]) -> tuple[int, int] | None:
    """The pair that most of the products have; None where none has a pair of another one. Two
    small factors are no pair: their product may be beyond the range where the whole is not."""
    counts = Counter(pair for factors in products for pair in {*combinations(sorted(factors), 2)})
    allowed = ((n, p) for p, n in counts.items() if not all(scalars.degree(f) < 0 for f in p))
    count, pair = max(allowed, default=(0, None))
    return pair if count > 1 else None


def _has(factors: list[int], pair: tuple[int, int]) -> bool:
    one, other = pair
    return one in factors and factors.count(other) > (one == other)
