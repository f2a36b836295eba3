"""Sums of products by fewer multiplications."""

from __future__ import annotations

from fractions import Fraction
from math import prod

import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from derivatrix.compiler.ir.scalar_values import Scalars
from derivatrix.compiler.plan.scalar_factoring import MAX_COST_RATIO, _cost, factored

LETTERS = "abcdef"


def value(table: Scalars, number: int) -> Fraction:
    """Evaluate a value exactly at some numbers."""
    operator, payload, children = table.entries[number]
    parts = [value(table, child) for child in children]
    match operator:
        case "name":
            return Fraction(3 + 2 * LETTERS.index(str(payload)), 7)
        case "number":
            return Fraction(str(payload))
        case "add":
            return sum(parts, Fraction(0))
        case "mul":
            return prod(parts, start=Fraction(1))
        case "neg":
            return -parts[0]
        case "div":
            return parts[0] / parts[1]
        case "entry":
            return parts[0]
    raise AssertionError(operator)


Term = tuple[list[int], int, int, bool]
"""The places of its factors, twice its coefficient, that of its divisor (none past the letters),
and whether it is an entry of its own."""

terms = st.tuples(
    st.lists(st.integers(0, 8), min_size=1, max_size=5),
    st.sampled_from([-4, -1, 1, 2, 3]),
    st.integers(0, 4 * len(LETTERS)),
    st.booleans(),
)
recipes = st.lists(st.lists(terms, min_size=1, max_size=6), min_size=1, max_size=4)


def table_of(recipe: list[list[Term]]) -> tuple[Scalars, list[int]]:
    """Sums of products of letters, and of sums before."""
    table = Scalars()
    letters = [table.name(letter) for letter in LETTERS]
    sums: list[int] = []
    for parts in recipe:
        known = letters + sums
        made = []
        for places, twice, divisor, entry in parts:
            factors = [known[place % len(known)] for place in places]
            term = table.product(factors, sympy.Rational(twice, 2))
            if divisor < len(letters):
                term = table.operate("div", term, letters[divisor])
            made.append(table.operate("entry", term) if entry else term)
        sums.append(table.sum(made))
    return table, sums


@settings(max_examples=100, deadline=None)  # the first of all examples fills SymPy's caches
@given(recipes)
def test_values_stay_the_same(recipe: list[list[Term]]) -> None:
    """Exactly, in rational numbers; and where they are made otherwise, by fewer operations."""
    table, values = table_of(recipe)
    before = _cost(table, values)
    result = factored(table, values)
    assert [value(table, n) for n in result] == [value(table, n) for n in values]
    assert result == values or _cost(table, result) < MAX_COST_RATIO * before


def test_what_terms_have_in_common() -> None:
    """a b c d + a b e - 2 a b f = a b (c d + e - 2 f)."""
    table = Scalars()
    a, b, c, d, e, f = (table.name(letter) for letter in LETTERS)
    terms = [
        table.product([a, b, c, d]),
        table.product([a, b, e]),
        table.product([a, b, f], -sympy.Integer(2)),
    ]
    whole = table.sum(terms)
    (result,) = factored(table, [whole])
    assert _cost(table, [whole]) == 10
    assert _cost(table, [result]) == 6
    assert value(table, result) == value(table, whole)


def test_what_products_have_in_common() -> None:
    """a b c, a b d, a b e and c a b f: a b is one product."""
    table = Scalars()
    a, b, c, d, e, f = (table.name(letter) for letter in LETTERS)
    values = [table.product(factors) for factors in ([a, b, c], [a, d, b], [a, b, e], [c, a, b, f])]
    result = factored(table, values)
    assert (_cost(table, values), _cost(table, result)) == (9, 5)
    assert [value(table, n) for n in result] == [value(table, n) for n in values]


def test_like_terms_are_added() -> None:
    """3 a b - (c + b a) + c - a b is a b, and a b - b a is 0."""
    table = Scalars()
    a, b, c = (table.name(letter) for letter in LETTERS[:3])
    product = table.product([a, b])
    inner = table.sum([c, table.product([b, a])])
    terms = [table.product([a, b], sympy.Integer(3)), table.product([inner], -sympy.S.One), c]
    difference = table.product([a, b], -sympy.S.One)
    assert value(table, table.sum([*terms, difference])) == value(table, product)
    assert table.sum([table.product([a, b], sympy.Integer(2)), difference]) == product
    assert table.constant(table.sum([product, difference])) == 0


def test_little_is_left_as_it_is() -> None:
    """A small saving does not justify longer chains of operations."""
    table = Scalars()
    a, b, c, d, e, f = (table.name(letter) for letter in LETTERS)
    values = [table.sum([table.product([a, b]), table.product([a, c]), d, e, f])]
    assert factored(table, values) == values
