"""What is known of a matrix by its construction: symmetric, spd, lower, upper, diagonal, ...

"psd" is positive semidefinite; "spd", definite, implies it. Facts hold for inputs that are what
they are declared as, in exact arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.canonical import canonical_labels
from derivatrix.compiler.ir.content import content
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.signs import positive, product_nonnegative

DIAGONAL = frozenset({"symmetric", "lower", "upper", "diagonal"})
IMPLIED = {
    **{name: frozenset({name}) for name in ("symmetric", "lower", "upper", "orthogonal")},
    "spd": frozenset({"symmetric", "psd", "spd"}),
    "diagonal": DIAGONAL,
}
"""What is known of an input, by the structure that it is declared with."""
ORTHONORMAL = "orthonormal columns"
"""What an operation says of its result of any shape; of a square one "orthogonal" as well."""
TRANSPOSED = {"lower": "upper", "upper": "lower"}
ADDED = frozenset({"symmetric", "psd", "lower", "upper", "diagonal"})
"""Facts that a sum has where all its terms have them."""
MOST_PARTS = 64
"""The most factors that a product is taken apart into to compare it with its own transpose."""


@lru_cache(maxsize=65536)
def facts(node: ir.Node) -> frozenset[str]:
    """The structure facts of `node`, by its last two axes; none for fewer axes."""
    if node.ndim < 2 or node.shape[-1] != node.shape[-2]:
        return frozenset()
    match node:
        case ir.Leaf():
            return IMPLIED.get(node.structure, frozenset())
        case ir.Constant():
            return _constant(node.array)
        case ir.Delta():
            return DIAGONAL | {"psd", "spd", "orthogonal"}
        case ir.Sum() if node.terms:
            return _sum(node)
        case ir.Map():
            return _map(node)
        case ir.Apply():
            return _applied(node)
        case ir.Einsum():
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


def _applied(node: ir.Apply) -> frozenset[str]:
    known = [facts(argument) for argument, _ in node.arguments]
    return node.operation.facts(known, node.output) - {ORTHONORMAL}


def _sum(node: ir.Sum) -> frozenset[str]:
    """What all terms share; a sum of semidefinite matrices is definite if one of them is."""
    each = [facts(term) for term in node.terms]
    known = frozenset.intersection(*each) & ADDED
    if "psd" in known and any("spd" in term for term in each):
        known |= {"spd"}
    if "symmetric" not in known and _mirrored(node):
        known |= {"symmetric"}
    return known


def _mirrored(node: ir.Sum) -> bool:
    """Whether the terms, transposed, are the terms again."""
    own: Counter[object] = Counter()
    for term in node.terms:
        if "symmetric" not in facts(term):
            own[_spelling(term, transposed=False)] += 1
            own[_spelling(term, transposed=True)] -= 1
    return not any(own.values())


def _spelling(term: ir.Node, transposed: bool) -> object:
    """A text for the term or its transpose, equal for equal products."""
    axes = list(range(term.ndim))
    if transposed:
        axes[-2:] = axes[:-3:-1]
    if isinstance(term, ir.Einsum):
        renames = dict(enumerate(axes))
        return content(term.coefficient), tuple(_multiset(term, renames))
    return "1", ((term.key, tuple(axes)),)


def _map(node: ir.Map) -> frozenset[str]:
    """Entry by entry, symmetry stays, and zeros where the function of zeros is zero."""
    known = frozenset.intersection(*(facts(argument) for argument in node.arguments))
    kept = known & {"symmetric"}
    if not kept and _exchangeable(node):
        kept |= {"symmetric"}
    if known & {"lower", "upper"}:
        zeros = {ir.slot(position): 0 for position in range(len(node.arguments))}
        if node.expression.subs(zeros) == 0:
            kept |= known & DIAGONAL
    return kept


def _exchangeable(node: ir.Map) -> bool:
    """Whether the function of the transposed arguments is the same function of the arguments."""
    turned = [_spelling(argument, transposed=True) for argument in node.arguments]
    straight = [_spelling(argument, transposed=False) for argument in node.arguments]
    if turned == straight or sorted(map(str, turned)) != sorted(map(str, straight)):
        return False
    exchanged = {ir.slot(i): ir.slot(straight.index(text)) for i, text in enumerate(turned)}
    return node.expression.xreplace(exchanged) == node.expression


def _einsum(node: ir.Einsum) -> frozenset[str]:
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


def _single(node: ir.Einsum) -> frozenset[str]:
    """The facts of the one factor that has the last two axes, where the others are weights."""
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


def _triangular(node: ir.Einsum, row: int, column: int) -> frozenset[str]:
    """Lower where the factors are zero unless row >= ... >= column along labels they link."""
    above: dict[int, set[int]] = {}
    for factor, labels in node.factors:
        if len(labels) < 2:
            continue
        first, second = labels[-2:]
        mask = isinstance(factor, ir.Triangle) and factor.offset >= 0
        known = frozenset({"lower"}) if mask else facts(factor)
        if "lower" in known:
            above.setdefault(first, set()).add(second)
        if "upper" in known:
            above.setdefault(second, set()).add(first)
    lower = _reaches(above, row, column)
    upper = _reaches(above, column, row)
    if lower and upper:
        return DIAGONAL
    return frozenset({"lower"} if lower else {"upper"} if upper else ())


def _reaches(above: dict[int, set[int]], start: int, end: int) -> bool:
    seen, pending = {start}, [start]
    while pending:
        for label in above.get(pending.pop(), ()):
            if label not in seen:
                seen.add(label)
                pending.append(label)
    return end in seen


def _diagonal(node: ir.Einsum, row: int, column: int) -> frozenset[str]:
    """diag(w) is definite where w is positive, and semidefinite where it is not negative."""
    rest = [
        f for f in node.factors if not (isinstance(f[0], ir.Delta) and set(f[1]) == {row, column})
    ]
    if len(rest) == len(node.factors):
        return frozenset()
    names = [row if label == column else label for label in range(len(node.sizes))]
    renamed = ir.relabelled(rest, names)
    if node.coefficient.is_positive and all(positive(weight) for weight, _ in renamed):
        return frozenset({"psd", "spd"})
    holds = node.coefficient.is_nonnegative and product_nonnegative(renamed)
    return frozenset({"psd"} if holds else ())


def _semidefinite(factors: Sequence[ir.Factor], row: int, column: int) -> bool:
    """Whether a product of factors, summed over all labels after `column`, is semidefinite:
    B[i,a] S[a,b] B[j,b] for a semidefinite S, and products of such, entry by entry (Schur)."""
    paired = _PairedLabels(row, column)
    rest = list(factors)
    while touching := [factor for factor in rest if paired.touches(factor)]:
        done = next((found for f in touching if (found := paired.take(f, touching))), ())
        if not done:
            return False
        for factor in done:
            rest.remove(factor)
    return product_nonnegative(rest)


class _PairedLabels:
    """Labels of a product B[i,a] S[a,b] B[j,b]: those that lead from the row, i and a, each with
    its partner among those that lead from the column, j and b; and those that both sides share,
    as of stacked axes and of sums of such products."""

    def __init__(self, row: int, column: int) -> None:
        self.partner = {row: column}
        self.shared: set[int] = set(range(row))
        self.last = column

    def touches(self, factor: ir.Factor) -> bool:
        return bool({*self.partner, *self.partner.values()} & set(factor[1]))

    def take(self, factor: ir.Factor, others: Sequence[ir.Factor]) -> tuple[ir.Factor, ...]:
        """The factors that keep the product semidefinite: a semidefinite `factor` that links a
        label and its partner; or a factor on the row's side and the same one on the column's.
        Nothing where it is neither."""
        node, labels = factor
        *outer, first, second = (-1, -1, *labels)
        linked = self.partner.get(first) == second or self.partner.get(second) == first
        if linked:
            return (factor,) if "psd" in facts(node) and self._share(set(outer) - {-1}) else ()
        if set(labels) & set(self.partner.values()):
            return ()
        for other in others:
            if other[0] is node and other is not factor and self._pair(labels, other[1]):
                return factor, other
        return ()

    def _share(self, labels: set[int]) -> bool:
        """Note labels that both sides share; False where one of them is on one side already."""
        if labels & {*self.partner, *self.partner.values()}:
            return False
        self.shared |= labels
        return True

    def _pair(self, labels: ir.Labels, others: ir.Labels) -> bool:
        """Note `others` as the partners of `labels`; False where that contradicts what is known."""
        partner = dict(self.partner)
        for one, two in zip(labels, others, strict=True):
            if one != two and partner.setdefault(one, two) != two:
                return False
        new = {*partner, *partner.values()} - {*self.partner, *self.partner.values()}
        same = {one for one, two in zip(labels, others, strict=True) if one == two}
        sides = {*partner, *partner.values()}
        apart = len(sides) == 2 * len(partner) and not sides & (same | self.shared)
        if not apart or any(label <= self.last for label in new):
            return False
        self.partner = partner
        self.shared |= same
        return True


def canonical_factors(factors: Sequence[ir.Factor], ndim: int, sizes: Shape) -> list[ir.Factor]:
    """The factors in canonical order with canonical labels, whichever way symmetric ones lie."""
    symmetric = {node for node, _ in factors if "symmetric" in facts(node)}
    return canonical_labels(factors, symmetric, ndim, sizes)


def _multiset(node: ir.Einsum, renames: dict[int, int]) -> list[tuple[str, tuple[int, ...]]]:
    """The factors, canonically labelled, with the output labels renamed."""
    names = [renames.get(label, label) for label in range(len(node.sizes))]
    factors = ir.relabelled(_flat(node.factors), names)
    ordered = canonical_factors(factors, node.ndim, node.sizes)
    return [(factor.key, labels) for factor, labels in ordered]


def _flat(factors: Iterable[ir.Factor]) -> Iterator[ir.Factor]:
    """The factors, with those that are products entry by entry of not too many taken apart."""
    for node, labels in factors:
        if isinstance(node, ir.Einsum) and _is_entrywise(node) and _parts(node) <= MOST_PARTS:
            yield from _flat(ir.relabelled(node.factors, labels))
        else:
            yield node, labels


def _is_entrywise(node: ir.Einsum) -> bool:
    return not node.contracted and node.coefficient == 1


@lru_cache(maxsize=65536)
def _parts(node: ir.Node) -> int:
    """How many factors a node is made of when it is taken apart: twice as many by each square."""
    if isinstance(node, ir.Einsum) and _is_entrywise(node):
        return sum(_parts(factor) for factor, _ in node.factors)
    return 1
