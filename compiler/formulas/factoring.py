"""What the terms of a sum have in common, written once, where the text becomes shorter; for
reading only, since the sizes of identity matrices are lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import sympy

from derivatrix.compiler.formulas import algebra
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.length import length, shortest_first
from derivatrix.compiler.formulas.rewrite import occurrences
from derivatrix.compiler.formulas.tree import Tree, is_row, negated

ONE = sympy.S.One
UNIT = kinds.Identity(sympy.Symbol("size"))
"""The identity of the size that fits, which is not written."""

PLUS_MINUS = (kinds.Number(ONE), kinds.Scale(-ONE, (), None))

MAX_TERMS = 12
"""Sums of more terms are left as they are."""

MIN_SAVING = 2
"""How much shorter a matrix taken out must make a sum."""

MAX_TERMS_AHEAD = 6
"""Two steps are looked ahead for sums of up to so many terms."""

Term = tuple[sympy.Expr, dict[Tree, sympy.Expr], Tree | None]
"""A coefficient, the powers of scalars, and the array."""


@lru_cache(maxsize=65536)
def factored(tree: kinds.Add) -> Tree:
    """A sum with common factors taken out."""
    if len(tree.terms) > MAX_TERMS:
        return tree
    best = _gathered(tree)
    while isinstance(best, kinds.Add):
        found = list(_candidates(best))
        if len(best.terms) <= MAX_TERMS_AHEAD:
            found += [
                (after, cost + further)
                for other, cost in found
                if isinstance(other, kinds.Add)
                for after, further in _candidates(other)
            ]
        costs = [(_length(other) + cost, other.sort_key, other) for other, cost in found]
        least = min(costs, default=None)
        if least is None or least[0] >= _length(best):
            return best
        best = least[2]
    return best


def _gathered(tree: kinds.Add) -> Tree:
    """The sum with terms that differ by a number only as one."""
    sizes: dict[tuple[frozenset[tuple[Tree, sympy.Expr]], Tree | None], sympy.Expr] = {}
    terms = [_parted(term) for term in tree.terms]
    for size, powers, body in terms:
        key = frozenset(powers.items()), body
        sizes[key] = sizes.get(key, sympy.S.Zero) + size
    if len(sizes) == len(terms):
        return tree
    return algebra.add(
        [_multiplied(size, dict(powers), body) for (powers, body), size in sizes.items() if size]
    )


def _length(tree: Tree) -> int:
    """The length of the text; an identity matrix that came in makes it longer."""
    return length(tree) + 6 * occurrences([tree])[UNIT]


def _candidates(tree: kinds.Add) -> Iterator[tuple[Tree, int]]:
    """The sum with something taken out, and how much shorter that must make it."""
    yield from ((other, 0) for other in _common_scalars(tree))
    if not tree.rank:
        yield from ((other, MIN_SAVING) for other in _shared_scalars(tree))
        yield from ((other, 0) for other in _joined_entries(tree))
    else:
        yield from ((other, 0) for other in _common_entries(tree))
    if tree.rank in (1, 2):
        yield from ((other, MIN_SAVING) for other in _common_ends(tree))


# Scalars


def _common_scalars(tree: kinds.Add) -> Iterator[Tree]:
    terms = [_parted(term) for term in tree.terms]
    bases = [base for base in terms[0][1] if all(base in powers for _, powers, _ in terms)]
    common: dict[Tree, sympy.Expr] = {}
    for base in bases:
        exponents = [powers[base] for _, powers, _ in terms]
        if all(exponent.is_positive for exponent in exponents):
            common[base] = min(exponents)
        elif all(exponent.is_negative for exponent in exponents):
            common[base] = max(exponents)
    sizes = {abs(coefficient) for coefficient, _, _ in terms}
    number = sizes.pop() if len(sizes) == 1 else ONE
    if any(body is None for _, _, body in terms) and tree.rank:
        return
    if all(coefficient.is_negative for coefficient, _, _ in terms):
        number = -number
    if not common and number == 1:
        return
    divided = [
        _multiplied(
            coefficient / number,
            {base: exponent - common.get(base, 0) for base, exponent in powers.items()},
            body,
        )
        for coefficient, powers, body in terms
    ]
    total = algebra.add(divided)
    yield _multiplied(number, common, factored(total) if isinstance(total, kinds.Add) else total)


def _shared_scalars(tree: kinds.Add) -> Iterator[Tree]:
    """A scalar that several terms have, and others have not, taken out of these."""
    terms = [_parted(term) for term in tree.terms]
    for base in dict.fromkeys(base for _, powers, _ in terms for base in powers):
        members = [i for i, (_, powers, _) in enumerate(terms) if powers.get(base) == 1]
        if not 1 < len(members) < len(terms):
            continue
        inner = [
            _multiplied(size, {own: power for own, power in powers.items() if own != base}, None)
            for size, powers, _ in (terms[i] for i in members)
        ]
        rest = [term for i, term in enumerate(tree.terms) if i not in members]
        sign, total = _signed(algebra.add(inner))
        yield algebra.add([*rest, algebra.scale(sign, [base, total], None)])


def _joined_entries(tree: kinds.Add) -> Iterator[Tree]:
    """Entries at one place of several matrices, products among them, as that of their sum."""
    places: dict[kinds.Indices, list[tuple[int, Tree]]] = {}
    for i, term in enumerate(tree.terms):
        size, powers, _ = _parted(term)
        match [*powers.items()]:
            case [(kinds.Indexed(body=body, indices=place), sympy.S.One)] if _is_entry(place):
                if place[::-1] in places:
                    place, body = place[::-1], algebra.transpose(body)
                places.setdefault(place, []).append((i, algebra.scale(size, [], body)))
    for place, found in places.items():
        if len(found) > 1 and any(matrix.counts[kinds.Matmul] for _, matrix in found):
            sign, total = _signed(algebra.add([matrix for _, matrix in found]))
            if isinstance(total, kinds.Scale) and total.body is not None:
                entry = [*total.scalars, kinds.Indexed(total.body, place)]
                sign *= total.coefficient
            else:
                entry = [kinds.Indexed(total, place)]
            rest = [term for i, term in enumerate(tree.terms) if i not in {i for i, _ in found}]
            yield algebra.add([*rest, algebra.scale(sign, entry, None)])


def _is_entry(place: kinds.Indices) -> bool:
    return len(place) == 2 and None not in place


def _parted(term: Tree) -> Term:
    powers: dict[Tree, sympy.Expr] = {}
    if isinstance(term, kinds.Number) and term.value.is_Rational:
        return term.value, powers, None
    if not isinstance(term, kinds.Scale):
        if term.rank:
            return ONE, powers, term
        algebra.multiply_in(powers, term)
        return ONE, powers, None
    for scalar in term.scalars:
        algebra.multiply_in(powers, scalar)
    return term.coefficient, powers, term.body


def _multiplied(coefficient: sympy.Expr, powers: dict[Tree, sympy.Expr], body: Tree | None) -> Tree:
    scalars = [
        algebra.raised(base, kinds.Number(power)) for base, power in powers.items() if power != 0
    ]
    return algebra.scale(coefficient, scalars, body)


# Products entry by entry


def _common_entries(tree: kinds.Add) -> Iterator[Tree]:
    parts = [_parted(term) for term in tree.terms]
    bodies = [body for _, _, body in parts if isinstance(body, kinds.Hadamard)]
    if len(bodies) < len(parts):
        return
    common = [f for f in bodies[0].factors if all(f in body.factors for body in bodies[1:])]
    if not common:
        return
    rest = []
    for (coefficient, powers, _), body in zip(parts, bodies, strict=True):
        left = list(body.factors)
        for factor in common:
            left.remove(factor)
        inner = algebra.hadamard(left) if left else None
        rest.append(_multiplied(coefficient, powers, inner))
    yield algebra.hadamard([*common, algebra.add(rest)])


# Products of matrices


def _common_ends(tree: kinds.Add) -> Iterator[Tree]:
    """Terms with a common last factor, or first one, as one term: a matrix, or the vector that
    several matrices are multiplied by."""
    parts = [_chain(term) for term in tree.terms]
    for end in (0, -1):
        ends = [chain[end] if chain else None for _, chain in parts]
        for factor in dict.fromkeys(ends):
            if factor is None or isinstance(factor, (kinds.Identity, kinds.Diag, kinds.Spread)):
                continue
            members = tuple(i for i, other in enumerate(ends) if other == factor)
            chains = [parts[i][1] for i in members]
            if factor.rank == 2:
                longer = tuple(i for i in members if len(parts[i][1]) > 1)
                for chosen in dict.fromkeys((members, longer)):
                    yield from _taken_out(tree, parts, chosen, end)
            elif end == -1 and all(len(own) > 1 and own[-2].rank == 2 for own in chains):
                yield from _taken_out(tree, parts, members, end)


def _chain(term: Tree) -> tuple[Tree, list[Tree]]:
    """A term as a scalar and the factors of a product of matrices; no factors: no such product."""
    scalar: Tree = kinds.Number(ONE)
    if isinstance(term, kinds.Scale) and term.body is not None:
        scalar, term = kinds.Scale(term.coefficient, term.scalars, None), term.body
    if isinstance(term, kinds.Over) or not term.rank:
        return scalar, []
    return scalar, list(term.factors) if isinstance(term, kinds.Matmul) else [term]


def _shared(found: Sequence[list[Tree]], end: int) -> int:
    """How many factors chains have in common, from their start (0) or end (-1)."""
    count = 0
    for together in zip(*(chain if end == 0 else chain[::-1] for chain in found), strict=False):
        if any(factor != together[0] for factor in together):
            break
        count += 1
    return count


def _taken_out(
    tree: kinds.Add, parts: Sequence[tuple[Tree, list[Tree]]], members: Sequence[int], end: int
) -> Iterator[Tree]:
    """The sum with the common factors of some terms taken out; rows after a common column are
    added as columns."""
    if len(members) < 2:
        return
    alike = [parts[i] for i in members]
    rest = [term for i, term in enumerate(tree.terms) if i not in members]
    count = _shared([chain for _, chain in alike], end)
    chain = alike[0][1]
    common = chain[:count] if end == 0 else chain[len(chain) - count :]
    rows = end == 0 and common[-1].rank == 1 and not is_row(common[-1])
    inner: list[Tree] = []
    for scalar, own in alike:
        left = own[count:] if end == 0 else own[: len(own) - count]
        if not left:
            if scalar not in PLUS_MINUS or (end == 0 and tree.rank == 1):
                return
            left = [UNIT]
        if rows:
            left = algebra.flipped(left)
        inner.append(algebra.scale(ONE, [scalar], algebra.matmul(*left)))
    if len({own.rank for own in inner}) > 1:
        return
    sign, total = _signed(algebra.add(inner))
    total = kinds.Transpose(total) if rows else total
    factors = [*common, total] if end == 0 else [total, *common]
    product = algebra.scale(sign, [], algebra.matmul(*factors))
    yield algebra.add([*rest, product]) if rest else product


def _signed(total: Tree) -> tuple[sympy.Expr, Tree]:
    """A sum or its negative, such that a sum and its negative give the same, with common factors
    taken out."""
    if not isinstance(total, kinds.Add):
        return ONE, total

    def without_sign(term: Tree) -> tuple[int, str]:
        return shortest_first(negated(term) if term.is_negative else term)

    if not min(total.terms, key=without_sign).is_negative:
        return ONE, freed(total)
    negative = [algebra.scale(-ONE, [], term) for term in total.terms]
    turned = algebra.add(negative)
    return -ONE, freed(turned) if isinstance(turned, kinds.Add) else turned


def freed(total: kinds.Add) -> Tree:
    """A sum in parentheses with common factors taken out; what is the same in all terms stands
    before the parentheses, where that is no longer."""
    tree = factored(total)
    if not isinstance(tree, kinds.Add):
        return tree
    return next((own for own in _common_scalars(tree) if length(own) <= length(tree)), tree)
