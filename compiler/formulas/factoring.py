"""Factoring sums where that makes their text shorter. It is for reading only, since identity
matrices lose their size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache

import sympy

from derivatrix.compiler.formulas import algebra
from derivatrix.compiler.formulas import tree as kinds
from derivatrix.compiler.formulas.length import length, shortest_first
from derivatrix.compiler.formulas.rewrite import occurrences
from derivatrix.compiler.formulas.tree import Tree, is_row, negated

ONE = sympy.S.One
IDENTITY = kinds.Identity(sympy.Symbol("size"))
"""The identity of the size that fits, which is not written."""

IDENTITY_COST = 6
"""Characters by which a formula with a new identity matrix must be shorter."""

PLUS_MINUS = (kinds.Number(ONE), kinds.Scale(-ONE, (), None))

MAX_TERMS = 12
"""Most terms of a sum that is factored."""

MIN_SAVING = 2
"""Characters by which factoring out a matrix, or a scalar of some terms, must shorten a sum."""

MAX_TERMS_TWO_STEPS = 6
"""Most terms of a sum for which pairs of steps are tried."""

Term = tuple[sympy.Expr, dict[Tree, sympy.Expr], Tree | None]
"""A coefficient, the exponents of scalars, and the array."""


@lru_cache(maxsize=65536)
def factor(tree: kinds.Add) -> Tree:
    """Factor a sum step by step, each time by the step that makes its text shortest."""
    if len(tree.terms) > MAX_TERMS:
        return tree
    best = _add_like_terms(tree)
    while isinstance(best, kinds.Add):
        candidates = list(_candidates(best))
        if len(best.terms) <= MAX_TERMS_TWO_STEPS:  # a first step may lengthen the text
            candidates += [
                (second, first_saving + second_saving)
                for candidate, first_saving in candidates
                if isinstance(candidate, kinds.Add)
                for second, second_saving in _candidates(candidate)
            ]
        shortest = min(
            (
                (_length(candidate) + min_saving, candidate.sort_key, candidate)
                for candidate, min_saving in candidates
            ),
            default=None,
        )
        if shortest is None or shortest[0] >= _length(best):
            return best
        best = shortest[2]
    return best


def _add_like_terms(tree: kinds.Add) -> Tree:
    """Add terms that differ by a number, or by the order of their scalars, as the first of them."""
    like_terms: dict[tuple[frozenset[tuple[Tree, sympy.Expr]], Tree | None], Term] = {}
    for coefficient, powers, body in map(_split_term, tree.terms):
        key = frozenset(powers.items()), body
        total, first_powers, _ = like_terms.get(key, (sympy.S.Zero, powers, body))
        like_terms[key] = total + coefficient, first_powers, body
    if len(like_terms) == len(tree.terms):
        return tree
    return algebra.add([_product(*term) for term in like_terms.values() if term[0]])


def _length(tree: Tree) -> int:
    return length(tree) + IDENTITY_COST * occurrences([tree])[IDENTITY]


def _candidates(tree: kinds.Add) -> Iterator[tuple[Tree, int]]:
    """Yield the sum with something factored out, and by how much that must shorten it."""
    yield from ((candidate, 0) for candidate in _common_scalars(tree))
    if not tree.rank:
        yield from ((candidate, MIN_SAVING) for candidate in _scalars_of_some_terms(tree))
        yield from ((candidate, 0) for candidate in _entries_of_sums(tree))
    else:
        yield from ((candidate, 0) for candidate in _common_entrywise_factors(tree))
    if tree.rank in (1, 2):
        yield from ((candidate, MIN_SAVING) for candidate in _common_ends(tree))


# Scalars


def _common_scalars(tree: kinds.Add) -> Iterator[Tree]:
    """Factor out the numbers and powers of scalars that all terms have."""
    terms = [_split_term(term) for term in tree.terms]
    bases = [base for base in terms[0][1] if all(base in powers for _, powers, _ in terms)]
    common: dict[Tree, sympy.Expr] = {}
    for base in bases:
        exponents = [powers[base] for _, powers, _ in terms]
        if all(exponent.is_positive for exponent in exponents):
            common[base] = min(exponents)
        elif all(exponent.is_negative for exponent in exponents):
            common[base] = max(exponents)
    magnitudes = {abs(coefficient) for coefficient, _, _ in terms}
    number = magnitudes.pop() if len(magnitudes) == 1 else ONE
    if any(body is None for _, _, body in terms) and tree.rank:
        return
    if all(coefficient.is_negative for coefficient, _, _ in terms):
        number = -number
    if not common and number == 1:
        return
    quotients = [
        _product(
            coefficient / number,
            {base: exponent - common.get(base, 0) for base, exponent in powers.items()},
            body,
        )
        for coefficient, powers, body in terms
    ]
    total = algebra.add(quotients)
    yield _product(number, common, factor(total) if isinstance(total, kinds.Add) else total)


def _scalars_of_some_terms(tree: kinds.Add) -> Iterator[Tree]:
    """Factor a scalar out of several terms, which others do not have."""
    terms = [_split_term(term) for term in tree.terms]
    for base in dict.fromkeys(base for _, powers, _ in terms for base in powers):
        members = [i for i, (_, powers, _) in enumerate(terms) if powers.get(base) == 1]
        if not 1 < len(members) < len(terms):
            continue
        quotients = [
            _product(coefficient, {key: power for key, power in powers.items() if key != base})
            for coefficient, powers, _ in (terms[i] for i in members)
        ]
        other_terms = [term for i, term in enumerate(tree.terms) if i not in members]
        sign, total = _signed(algebra.add(quotients))
        yield algebra.add([*other_terms, algebra.scale(sign, [base, total], None)])


def _entries_of_sums(tree: kinds.Add) -> Iterator[Tree]:
    """Write the sum of entries [i,j] of several matrices, not all names, as entry of their sum."""
    members: dict[kinds.Indices, dict[int, Tree]] = {}
    for i, term in enumerate(tree.terms):
        coefficient, powers, _ = _split_term(term)
        match [*powers.items()]:
            case [(kinds.Indexed(body=body, indices=(_, _) as indices), sympy.S.One)]:
                if None in indices:
                    continue
                if indices[::-1] in members:
                    indices, body = indices[::-1], algebra.transpose(body)
                matrix = algebra.scale(coefficient, [], body)
                members.setdefault(indices, {})[i] = matrix
    for indices, matrices in members.items():
        has_product = any(matrix.counts[kinds.Matmul] for matrix in matrices.values())
        if len(matrices) > 1 and has_product:
            sign, total = _signed(algebra.add([*matrices.values()]))
            scalars: tuple[Tree, ...] = ()
            if isinstance(total, kinds.Scale) and total.body is not None:
                sign, scalars, total = sign * total.coefficient, total.scalars, total.body
            entry = algebra.scale(sign, [*scalars, kinds.Indexed(total, indices)], None)
            other_terms = [term for i, term in enumerate(tree.terms) if i not in matrices]
            yield algebra.add([*other_terms, entry])


def _split_term(term: Tree) -> Term:
    """Split a term into its coefficient, powers of scalars, and array."""
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


def _product(
    coefficient: sympy.Expr, powers: dict[Tree, sympy.Expr], body: Tree | None = None
) -> Tree:
    """Build a term; the reverse of `_split_term`."""
    scalars = [
        algebra.raised(base, kinds.Number(power)) for base, power in powers.items() if power != 0
    ]
    return algebra.scale(coefficient, scalars, body)


# Products entry by entry


def _common_entrywise_factors(tree: kinds.Add) -> Iterator[Tree]:
    """Factor out the arrays that all terms, entrywise products, have as factors."""
    terms = [_split_term(term) for term in tree.terms]
    bodies = [body for _, _, body in terms if isinstance(body, kinds.Hadamard)]
    if len(bodies) < len(terms):
        return
    common = [f for f in bodies[0].factors if all(f in body.factors for body in bodies[1:])]
    if not common:
        return
    quotients = []
    for (coefficient, powers, _), body in zip(terms, bodies, strict=True):
        factors = list(body.factors)
        for factor in common:
            factors.remove(factor)
        quotient = algebra.hadamard(factors) if factors else None
        quotients.append(_product(coefficient, powers, quotient))
    yield algebra.hadamard([*common, algebra.add(quotients)])


# Products of matrices


def _common_ends(tree: kinds.Add) -> Iterator[Tree]:
    """Factor out the first or last factors that several matrix products share: matrices, or the
    vector that several matrices are multiplied by."""
    terms = [_scalar_and_chain(term) for term in tree.terms]
    for end in (0, -1):
        end_factors = [chain[end] if chain else None for _, chain in terms]
        for factor in dict.fromkeys(end_factors):
            if factor is None or isinstance(factor, (kinds.Identity, kinds.Diag, kinds.Spread)):
                continue
            members = tuple(i for i, end_factor in enumerate(end_factors) if end_factor == factor)
            chains = [terms[i][1] for i in members]
            if factor.rank == 2:
                products = tuple(i for i in members if len(terms[i][1]) > 1)
                for subset in dict.fromkeys((members, products)):
                    yield from _factor_out_end(tree, terms, subset, end)
            elif end == -1 and all(len(chain) > 1 and chain[-2].rank == 2 for chain in chains):
                yield from _factor_out_end(tree, terms, members, end)


def _scalar_and_chain(term: Tree) -> tuple[Tree, list[Tree]]:
    """Split a term into a scalar and the factors of a matrix product; none for other terms."""
    scalar: Tree = kinds.Number(ONE)
    if isinstance(term, kinds.Scale) and term.body is not None:
        scalar, term = kinds.Scale(term.coefficient, term.scalars, None), term.body
    if isinstance(term, kinds.Over) or not term.rank:
        return scalar, []
    return scalar, list(term.factors) if isinstance(term, kinds.Matmul) else [term]


def _factor_out_end(
    tree: kinds.Add, terms: Sequence[tuple[Tree, list[Tree]]], members: Sequence[int], end: int
) -> Iterator[Tree]:
    """Factor out all factors that the chains of some terms share at their start (0) or end (-1).
    Rows after a common column are added as columns."""
    if len(members) < 2:
        return
    scalars, chains = zip(*(terms[i] for i in members), strict=True)
    other_terms = [term for i, term in enumerate(tree.terms) if i not in members]
    positions = zip(*(chain if end == 0 else chain[::-1] for chain in chains), strict=False)
    count = len([*itertools.takewhile(lambda factors: len({*factors}) == 1, positions)])
    common = chains[0][:count] if end == 0 else chains[0][-count:]
    adds_rows = end == 0 and common[-1].rank == 1 and not is_row(common[-1])
    quotients: list[Tree] = []
    for scalar, chain in zip(scalars, chains, strict=True):
        factors = chain[count:] if end == 0 else chain[:-count]
        if not factors:
            if scalar not in PLUS_MINUS or (end == 0 and tree.rank == 1):
                return
            factors = [IDENTITY]
        if adds_rows:
            factors = algebra.flipped(factors)
        quotients.append(algebra.scale(ONE, [scalar], algebra.matmul(*factors)))
    if len({quotient.rank for quotient in quotients}) > 1:
        return
    sign, total = _signed(algebra.add(quotients))
    total = kinds.Transpose(total) if adds_rows else total
    factors = [*common, total] if end == 0 else [total, *common]
    product = algebra.scale(sign, [], algebra.matmul(*factors))
    yield algebra.add([*other_terms, product]) if other_terms else product


def _signed(total: Tree) -> tuple[sympy.Expr, Tree]:
    """Factor a sum, or its negative, whichever has the plus sign at its shortest term. Returns the
    sign and the result, which are the same for both up to the sign."""
    if not isinstance(total, kinds.Add):
        return ONE, total

    def without_sign(term: Tree) -> tuple[int, str]:
        return shortest_first(negated(term) if term.is_negative else term)

    if not min(total.terms, key=without_sign).is_negative:
        return ONE, factor_in_parentheses(total)
    negative = algebra.negative(total)
    return -ONE, factor_in_parentheses(negative) if isinstance(negative, kinds.Add) else negative


def factor_in_parentheses(total: kinds.Add) -> Tree:
    """Factor a sum that gets parentheses. A common number or scalar is moved before these even if
    the text does not become shorter."""
    tree = factor(total)
    if not isinstance(tree, kinds.Add):
        return tree
    outside = (scaled for scaled in _common_scalars(tree) if length(scaled) <= length(tree))
    return next(outside, tree)
