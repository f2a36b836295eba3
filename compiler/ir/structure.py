"""What is known of a matrix by its construction: symmetric, spd, lower, upper, diagonal, ...

"psd" is positive semidefinite; "spd", definite, implies it. Facts hold for inputs that are what
they are declared as, in exact arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from derivatrix.compiler.ir.canonical import canonical_labels
from derivatrix.compiler.ir.content import content
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.nodes import (
    Apply,
    Constant,
    Delta,
    Einsum,
    Factor,
    Labels,
    Leaf,
    Map,
    Node,
    Sum,
    Triangle,
    slot,
)
from derivatrix.compiler.ir.signs import positive, product_nonnegative

DIAGONAL = frozenset({"symmetric", "lower", "upper", "diagonal"})
IMPLIED = {
    "general": frozenset(),
    "symmetric": frozenset({"symmetric"}),
    "spd": frozenset({"symmetric", "psd", "spd"}),
    "lower": frozenset({"lower"}),
    "upper": frozenset({"upper"}),
    "diagonal": DIAGONAL,
    "orthogonal": frozenset({"orthogonal"}),
}
ORTHONORMAL = "orthonormal columns"
"""What an operation says of its result of any shape; of a square one "orthogonal" as well."""
TRANSPOSED = {"lower": "upper", "upper": "lower"}
ADDED = frozenset({"symmetric", "psd", "lower", "upper", "diagonal"})
"""Facts that a sum has where all its terms have them."""


@lru_cache(maxsize=65536)
def facts(node: Node) -> frozenset[str]:
    """The structure facts of `node`, by its last two axes; none for fewer axes."""
    if node.ndim < 2 or node.shape[-1] != node.shape[-2]:
        return frozenset()
    match node:
        case Leaf():
            return IMPLIED.get(node.structure, frozenset())
        case Constant():
            return _constant(node.array)
        case Delta():
            return DIAGONAL | {"psd", "spd", "orthogonal"}
        case Sum() if node.terms:
            return _sum(node)
        case Map():
            return _map(node)
        case Apply():
            return _applied(node)
        case Einsum():
            return _einsum(node)
    return frozenset()


def _constant(array: np.ndarray) -> frozenset[str]:
    lower, upper = (np.array_equal(array, part(array)) for part in (np.tril, np.triu))
    if lower and upper:
        return DIAGONAL
    symmetric = np.array_equal(array, array.swapaxes(-1, -2))
    return frozenset(
        {"lower"} if lower else {"upper"} if upper else {"symmetric"} if symmetric else ()
    )


def _applied(node: Apply) -> frozenset[str]:
    known = [facts(argument) for argument, _ in node.arguments]
    return node.operation.facts(known, node.output) - {ORTHONORMAL}


def _sum(node: Sum) -> frozenset[str]:
    """What all terms share; a sum of semidefinite matrices is definite if one of them is."""
    each = [facts(term) for term in node.terms]
    known = frozenset.intersection(*each) & ADDED
    if "psd" in known and any("spd" in term for term in each):
        known |= {"spd"}
    if "symmetric" not in known and _mirrored(node):
        known |= {"symmetric"}
    return known


def _mirrored(node: Sum) -> bool:
    """Whether the terms, transposed, are the terms again."""
    own: Counter[object] = Counter()
    for term in node.terms:
        if "symmetric" not in facts(term):
            own[_spelling(term, transposed=False)] += 1
            own[_spelling(term, transposed=True)] -= 1
    return not any(own.values())


def _spelling(term: Node, transposed: bool) -> object:
    """A text for the term or its transpose, equal for equal products."""
    axes = list(range(term.ndim))
    if transposed:
        axes[-2:] = axes[:-3:-1]
    if isinstance(term, Einsum):
        renames = dict(enumerate(axes))
        return content(term.coefficient), tuple(_multiset(term, renames))
    return "1", ((term.key, tuple(axes)),)


def _map(node: Map) -> frozenset[str]:
    """Entry by entry, symmetry stays, and zeros where the function of zeros is zero."""
    known = frozenset.intersection(*(facts(argument) for argument in node.arguments))
    kept = known & {"symmetric"}
    if not kept and _exchangeable(node):
        kept |= {"symmetric"}
    if known & {"lower", "upper"}:
        zeros = {slot(position): 0 for position in range(len(node.arguments))}
        if node.expression.subs(zeros) == 0:
            kept |= known & DIAGONAL
    return kept


def _exchangeable(node: Map) -> bool:
    """Whether the function of the transposed arguments is the same function of the arguments."""
    turned = [_spelling(argument, transposed=True) for argument in node.arguments]
    straight = [_spelling(argument, transposed=False) for argument in node.arguments]
    if turned == straight or sorted(map(str, turned)) != sorted(map(str, straight)):
        return False
    exchanged = {slot(i): slot(straight.index(text)) for i, text in enumerate(turned)}
    return node.expression.xreplace(exchanged) == node.expression


def _einsum(node: Einsum) -> frozenset[str]:
    """A product: transposed, scaled and weighted matrices keep facts, a product equal to its own
    transpose (AᵀA, v vᵀ) is symmetric, one of triangles triangular, A S Aᵀ semidefinite with S."""
    row, column = node.ndim - 2, node.ndim - 1
    known = _single(node) | _triangular(node, row, column) | _diagonal(node, row, column)
    if "symmetric" not in known:
        swapped = {row: column, column: row}
        if _multiset(node, {}) == _multiset(node, swapped):
            known |= {"symmetric"}
    unknown = "symmetric" in known and "psd" not in known and node.coefficient.is_nonnegative
    if unknown and _semidefinite(node.factors, row, column):
        known |= {"psd"}
    return known


def _single(node: Einsum) -> frozenset[str]:
    """The facts of one matrix with weights that are the same for all its entries."""
    last = (node.ndim - 2, node.ndim - 1)
    touching = [i for i, (_, labels) in enumerate(node.factors) if set(labels) & set(last)]
    if len(touching) != 1:
        return frozenset()
    matrix, labels = node.factors[touching[0]]
    if set(labels[-2:]) != set(last) or set(labels[:-2]) & set(last):
        return frozenset()
    known = facts(matrix)
    if labels[-2:] != last:
        known = frozenset(TRANSPOSED.get(fact, fact) for fact in known)
    weights = [factor for i, factor in enumerate(node.factors) if i != touching[0]]
    if weights or node.contracted or node.coefficient != 1:
        known -= {"orthogonal"}
    if not (node.coefficient.is_positive and all(positive(weight) for weight, _ in weights)):
        known -= {"spd"}
    if not (node.coefficient.is_nonnegative and product_nonnegative(weights)):
        known -= {"psd"}
    return known


def _triangular(node: Einsum, row: int, column: int) -> frozenset[str]:
    """Lower where the factors are zero unless row >= ... >= column along labels they link."""
    above: dict[int, set[int]] = {}
    for factor, labels in node.factors:
        if len(labels) < 2:
            continue
        first, second = labels[-2:]
        known = frozenset({"lower"}) if _is_mask(factor) else facts(factor)
        if "lower" in known:
            above.setdefault(first, set()).add(second)
        if "upper" in known:
            above.setdefault(second, set()).add(first)
    lower = _reaches(above, row, column)
    upper = _reaches(above, column, row)
    if lower and upper:
        return DIAGONAL
    return frozenset({"lower"} if lower else {"upper"} if upper else ())


def _is_mask(node: Node) -> bool:
    return isinstance(node, Triangle) and node.offset >= 0


def _reaches(above: dict[int, set[int]], start: int, end: int) -> bool:
    seen, pending = {start}, [start]
    while pending:
        for label in above.get(pending.pop(), ()):
            if label not in seen:
                seen.add(label)
                pending.append(label)
    return end in seen


def _diagonal(node: Einsum, row: int, column: int) -> frozenset[str]:
    """diag(w) is definite where w is positive, and semidefinite where it is not negative."""
    rest = [f for f in node.factors if not (isinstance(f[0], Delta) and set(f[1]) == {row, column})]
    if len(rest) == len(node.factors):
        return frozenset()
    renamed = [
        (factor, tuple(row if label == column else label for label in labels))
        for factor, labels in rest
    ]
    if node.coefficient.is_positive and all(positive(weight) for weight, _ in renamed):
        return frozenset({"psd", "spd"})
    holds = node.coefficient.is_nonnegative and product_nonnegative(renamed)
    return frozenset({"psd"} if holds else ())


def _semidefinite(factors: Sequence[Factor], row: int, column: int) -> bool:
    """Whether a product of factors, summed over all labels after `column`, is semidefinite:
    B[i,a] S[a,b] B[j,b] for a semidefinite S, and products of such, entry by entry (Schur)."""
    halves = _Halves(row, column)
    rest = list(factors)
    while touching := [factor for factor in rest if halves.touches(factor)]:
        done = next((found for f in touching if (found := halves.take(f, touching))), ())
        if not done:
            return False
        for factor in done:
            rest.remove(factor)
    return product_nonnegative(rest)


class _Halves:
    """The labels of a product on the row's side, each with its partner on the column's, and
    those that are the same for both: a sum over these keeps what holds for each."""

    def __init__(self, row: int, column: int) -> None:
        self.partner = {row: column}
        self.fixed: set[int] = set(range(row))
        self.last = column

    def touches(self, factor: Factor) -> bool:
        return bool({*self.partner, *self.partner.values()} & set(factor[1]))

    def take(self, factor: Factor, others: Sequence[Factor]) -> tuple[Factor, ...]:
        """What `factor` makes semidefinite: itself, if it is and links the sides; or, if it is on
        the row's side, with its double on the column's. Nothing where neither is so."""
        node, labels = factor
        *outer, first, second = (-1, -1, *labels)
        linked = self.partner.get(first) == second or self.partner.get(second) == first
        if linked:
            return (factor,) if "psd" in facts(node) and self._fix(set(outer) - {-1}) else ()
        if set(labels) & set(self.partner.values()):
            return ()
        for other in others:
            if other[0] is node and other is not factor and self._double(labels, other[1]):
                return factor, other
        return ()

    def _fix(self, labels: set[int]) -> bool:
        """Note labels that are the same for both sides, if they can be."""
        if labels & {*self.partner, *self.partner.values()}:
            return False
        self.fixed |= labels
        return True

    def _double(self, labels: Labels, others: Labels) -> bool:
        """Note that `labels` on the row's side are `others` on the column's, if they can be."""
        partner = dict(self.partner)
        for one, two in zip(labels, others, strict=True):
            if one != two and partner.setdefault(one, two) != two:
                return False
        new = {*partner, *partner.values()} - {*self.partner, *self.partner.values()}
        same = {one for one, two in zip(labels, others, strict=True) if one == two}
        sides = {*partner, *partner.values()}
        apart = len(sides) == 2 * len(partner) and not sides & (same | self.fixed)
        if not apart or any(label <= self.last for label in new):
            return False
        self.partner = partner
        self.fixed |= same
        return True


def canonical_factors(factors: Sequence[Factor], ndim: int, sizes: Shape) -> list[Factor]:
    """The factors in canonical order with canonical labels, whichever way symmetric ones lie."""
    symmetric = {node for node, _ in factors if "symmetric" in facts(node)}
    return canonical_labels(factors, symmetric, ndim, sizes)


def _multiset(node: Einsum, renames: dict[int, int]) -> list[tuple[str, tuple[int, ...]]]:
    """The factors, canonically labelled, with the output labels renamed."""
    factors = [
        (factor, tuple(renames.get(label, label) for label in labels))
        for factor, labels in _flat(node.factors)
    ]
    ordered = canonical_factors(factors, node.ndim, node.sizes)
    return [(factor.key, labels) for factor, labels in ordered]


def _flat(factors: Iterable[Factor]) -> Iterator[Factor]:
    """The factors, with those that are products entry by entry taken apart."""
    for node, labels in factors:
        if isinstance(node, Einsum) and not node.contracted and node.coefficient == 1:
            inner = [(factor, tuple(labels[axis] for axis in own)) for factor, own in node.factors]
            yield from _flat(inner)
        else:
            yield node, labels
