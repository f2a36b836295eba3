"""The rules for products, a row each: a product in, the simpler product out, or None.

Each leaves the value unchanged and makes the product smaller, so that applying them until none
applies ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sympy

from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.nodes import (
    Apply,
    Delta,
    Einsum,
    Gather,
    Labels,
    Leaf,
    Map,
    Node,
    Reshape,
    Slice,
    Structural,
    Triangle,
    Vech,
    einsum,
    is_zero,
    power_of,
    relabelled,
    slot,
)
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.operations.softmax import SOFTMAX
from derivatrix.compiler.simplify.inverses import absorb_projector, cancel_inverse
from derivatrix.compiler.simplify.spectra import cancel_orthonormal, cancel_pair, sum_spectrum

Rule = Callable[[Product], Product | None]


def simplify_product(
    product: Product, inlinable: Callable[[Einsum, Product], bool], rules: Sequence[Rule]
) -> Product | None:
    """The product with every rule applied until none applies; None if it is zero, or an array or
    sum of no entries."""
    while True:
        position = next(
            (
                i
                for i, (node, _) in enumerate(product.factors)
                if isinstance(node, Einsum) and inlinable(node, product)
            ),
            None,
        )
        if position is not None:
            product = product.inlined(position)
            continue
        if product.coefficient == 0 or sympy.S.Zero in product.sizes.values():
            return None
        if any(is_zero(node) for node, _ in product.factors):
            return None
        simpler = next((new for rule in rules if (new := rule(product)) is not None), None)
        if simpler is None:
            return product
        product = simpler


def _each(product: Product, kind: Any) -> Iterator[tuple[int, Any, Labels]]:
    """The positions, nodes and labels of the factors of a kind."""
    for position, (node, labels) in enumerate(product.factors):
        if isinstance(node, kind):
            yield position, node, labels


def _pairs(product: Product, kind: Any) -> Iterator[tuple[int, int]]:
    """Positions of the ordered pairs of factors of a kind."""
    yield from itertools.permutations((i for i, _, _ in _each(product, kind)), 2)


def count_free_labels(product: Product) -> Product | None:
    """A summed label that no factor has counts its dimension."""
    counted = product.counted()
    return None if counted is product else counted


def drop_single_entry(product: Product) -> Product | None:
    """δ[i,j] = [i >= j] = 1 for axes of length 1."""
    for position, node, _ in _each(product, Delta | Triangle):
        if all(size == 1 for size in node.shape):
            above = isinstance(node, Triangle) and node.offset > 0
            return product.without(position).scaled(sympy.Integer(not above))
    return None


def eliminate_delta(product: Product) -> Product | None:
    """δ[i,i] = 1; Σ_j δ[i,j] F[j] = F[i]; δ[i,j] F[j] = δ[i,j] F[i]."""
    for position, node, labels in _each(product, Delta):
        first, second = labels
        rest = product.without(position)
        if first == second:
            return rest
        if second not in product.output:
            return rest.renamed(second, first)
        if first not in product.output:
            return rest.renamed(first, second)
        low, high = sorted(labels, key=product.output.index)
        if any(high in own for i, (_, own) in enumerate(product.factors) if i != position):
            return rest.renamed(high, low).times((node, (low, high)))
        if labels != (low, high):
            return rest.times((node, (low, high)))
    return None


def merge_slices(product: Product) -> Product | None:
    """Equal selections of one axis make a delta; a selection of a selection is one."""
    for one, two in _pairs(product, Slice):
        (left, (i, j)), (right, (k, m)) = product.factors[one], product.factors[two]
        assert isinstance(left, Slice) and isinstance(right, Slice)
        if left is right and j == m:
            rest = product.without(two)
            return rest if i == k else rest.times((Delta(left.shape[0]), (i, k)))
        if left is right and i == k:
            return product.without(two).times((Delta(left.shape[1]), (j, m)))
        if j == k and product.private(j, 2):
            start = sympy.expand(right.start + right.step * left.start)
            step = left.step * right.step
            merged = Slice(left.shape[0], right.shape[1], start, step)
            return product.without(one, two, summed=j).times((merged, (i, m)))
        if j == m and _disjoint(left, right):
            return product.scaled(sympy.S.Zero)
    return None


def _disjoint(left: Slice, right: Slice) -> bool:
    """Whether two selections provably have no index in common."""
    if left.step != 1 or right.step != 1:
        return False
    return any(
        sympy.expand(after.start - before.start - before.shape[0]).is_nonnegative
        for before, after in ((left, right), (right, left))
    )


def drop_slice(product: Product) -> Product | None:
    """Σ_j [j = s + t i] = 1; a selection of everything is a delta."""
    for position, node, labels in _each(product, Slice):
        if product.private(labels[1], 1):
            return product.without(position, summed=labels[1])
        if node.shape[0] == node.shape[1] and node.start == 0 and node.step == 1:
            return product.without(position).times((Delta(node.shape[0]), labels))
    return None


def merge_merges(product: Product) -> Product | None:
    """Equal factors that share the merged axis, or the two merged ones, make deltas; two axes
    merged and then a third are the first and a merge of the others."""
    for one, two in _pairs(product, Reshape | Vech):
        (left, (k, i, j)), (right, (n, a, b)) = product.factors[one], product.factors[two]
        if left is right and k == n:
            deltas = ((Delta(left.shape[1]), (i, a)), (Delta(left.shape[2]), (j, b)))
            return product.without(two).times(*deltas)
        if left is right and (i, j) == (a, b):
            return product.without(two).times((Delta(left.shape[0]), (k, n)))
        nested = isinstance(left, Reshape) and isinstance(right, Reshape) and i == n
        if nested and product.private(i, 2):
            inner = Reshape(right.shape[2], left.shape[2])
            outer = Reshape(right.shape[1], inner.shape[0])
            (label,) = product.fresh(1)
            rest = product.without(one, two, summed=i)
            return rest.times((outer, (k, a, label)), (inner, (label, b, j)))
    return None


def drop_reshape(product: Product) -> Product | None:
    """Summed over the merged axis, or over both others, a merge is 1; axes of length 1 merge
    away; a packed triangle summed over is a mask."""
    for position, (node, labels) in enumerate(product.factors):
        if not isinstance(node, Reshape | Vech) or len(set(labels)) < 3:
            continue
        merged, outer, inner = labels
        if product.private(merged, 1):
            rest = product.without(position, summed=merged)
            mask = Triangle(*node.shape[1:])
            return rest.times((mask, (outer, inner))) if isinstance(node, Vech) else rest
        if product.private(outer, 1) and product.private(inner, 1):
            return product.without(position, summed=outer).without(summed=inner)
        for single, other in ((1, inner), (2, outer)):
            if isinstance(node, Reshape) and node.shape[single] == 1:
                delta = Delta(node.shape[0])
                return product.without(position).times((delta, (merged, other)))
    return None


def merge_gathers(product: Product) -> Product | None:
    """Σ_j [j = t_i] = 1; the same pick twice at one i is a delta on j."""
    for one, node, labels in _each(product, Gather):
        if product.private(labels[1], 1):
            return product.without(one, summed=labels[1])
        for two in range(one + 1, len(product.factors)):
            other, others = product.factors[two]
            if other is node and others[0] == labels[0]:
                delta = Delta(node.shape[1])
                return product.without(two).times((delta, (labels[1], others[1])))
    return None


def merge_powers(product: Product) -> Product | None:
    """x^a x^b = x^(a+b), for factors with the same labels."""
    groups: dict[tuple[Node, tuple[int, ...]], list[tuple[int, sympy.Expr]]] = {}
    for position, (node, labels) in enumerate(product.factors):
        base, exponent = power_of(node)
        groups.setdefault((base, labels), []).append((position, exponent))
    for (base, labels), members in groups.items():
        total = sum((exponent for _, exponent in members), sympy.S.Zero)
        mixed = len(members) > 1 and any(exponent != 1 for _, exponent in members)
        if not mixed and not (len(members) > 3 and not isinstance(base, Structural)):
            continue
        product = product.without(*(position for position, _ in members))
        if total in (0, 1, 2, 3):
            return product.times(*[(base, labels)] * int(total))
        return product.times((Map(slot(0) ** total, (base,)), labels))
    return None


def cancel_quotients(product: Product) -> Product | None:
    """a b / (a b c) = 1/c, entry by entry."""
    for one, (node, labels) in enumerate(product.factors):
        base, exponent = power_of(node)
        plain = isinstance(base, Einsum) and not base.contracted and base.coefficient.is_number
        if not plain or not exponent.is_Integer or exponent >= 0:
            continue
        assert isinstance(base, Einsum)
        inner = relabelled(base.factors, labels)
        found: list[int] = []
        left = []
        for factor, (_, own) in zip(inner, base.factors, strict=True):
            places = (i for i, other in enumerate(product.factors) if other == factor)
            position = next((i for i in places if i not in found), None)
            if position is None:
                left.append((factor[0], own))
            else:
                found.append(position)
        if found and (not left or exponent == -1):
            rest = product.without(one, *found).scaled(1 / base.coefficient)
            below = einsum(left, range(base.ndim), sizes=dict(enumerate(base.sizes)))
            powers = [] if exponent == -1 else [Map(slot(0) ** (exponent + 1), (base,))]
            powers += [Map(1 / slot(0), (below,))] if left else []
            return rest.times(*((power, labels) for power in powers))
    return None


INDICATORS = ((1 + sympy.sign(slot(0))) / 2, scalar_functions.step(slot(0)))
POSITIVE_PARTS = (sympy.Max(0, slot(0)), scalar_functions.relu(slot(0)))


def drop_indicator(product: Product) -> Product | None:
    """[t > 0] max(0, t) = max(0, t), whatever the indicator is at 0."""
    for one, node, labels in _each(product, Map):
        if node.expression not in INDICATORS:
            continue
        for other, others in product.factors:
            base, exponent = power_of(other)
            positive = isinstance(base, Map) and base.expression in POSITIVE_PARTS
            alike = others == labels and base.children == node.children
            if positive and alike and exponent.is_positive:
                return product.without(one)
    return None


def cancel_orthogonal(product: Product) -> Product | None:
    """QᵀQ = Q Qᵀ = I for an orthogonal input."""
    for one, two in _pairs(product, Leaf):
        node = product.factors[one][0]
        if node is product.factors[two][0] and "orthogonal" in facts(node):
            simpler = cancel_pair(product, one, two, (-2, -1))
            if simpler is not None:
                return simpler
    return None


def drop_triangle(product: Product) -> Product | None:
    """A triangle's mask on a matrix of that triangle, or twice, changes nothing."""
    for position, node, labels in _each(product, Triangle):
        if labels[0] == labels[1]:
            return product.without(position).scaled(sympy.Integer(node.offset <= 0))
        for other, (factor, own) in enumerate(product.factors):
            if other == position:
                continue
            if factor is node and own == labels:
                return product.without(position)
            if node.offset > 0 or isinstance(factor, Structural):
                continue
            known = facts(factor)
            lower = "lower" in known and own[-2:] == labels
            upper = "upper" in known and own[-2:] == labels[::-1]
            if lower or upper:
                return product.without(position)
    return None


def recognise_softmax(product: Product) -> Product | None:
    """exp(z) / Σ exp(z) = softmax(z), over z's last axis."""
    for one, node, labels in _each(product, Map):
        if node.expression != sympy.exp(slot(0)) or not node.ndim:
            continue
        for two, (other, others) in enumerate(product.factors):
            base, exponent = power_of(other)
            if exponent == -1 and others == labels[:-1] and _sums_last_axis(base, node):
                stack = node.shape[:-1]
                argument = (node.arguments[0], tuple(range(len(stack))))
                softmax = Apply(SOFTMAX, (argument,), stack)
                return product.without(one, two).times((softmax, labels))
    return None


def _sums_last_axis(node: Node, summand: Node) -> bool:
    return (
        isinstance(node, Einsum)
        and node.coefficient == 1
        and node.factors == ((summand, tuple(range(summand.ndim))),)
        and node.ndim == summand.ndim - 1
    )


RULES: tuple[Rule, ...] = (
    count_free_labels,
    drop_single_entry,
    eliminate_delta,
    merge_slices,
    drop_slice,
    merge_merges,
    drop_reshape,
    merge_gathers,
    merge_powers,
    cancel_quotients,
    drop_indicator,
    cancel_inverse,
    absorb_projector,
    cancel_orthonormal,
    sum_spectrum,
    drop_triangle,
    recognise_softmax,
)

FINAL_RULES: tuple[Rule, ...] = (cancel_orthogonal,)
"""True at the points of a curved structure only, not along every direction there."""
