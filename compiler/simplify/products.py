"""Rules for products: a product in, the simpler product out, or None.

Each rule keeps the value and makes the product smaller, so that their application ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.arrays import Array, elementwise
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.operations.softmax import SOFTMAX
from derivatrix.compiler.simplify.functions import powers_of, sine_of, with_tangents
from derivatrix.compiler.simplify.inverses import absorb_projector, cancel_inverse
from derivatrix.compiler.simplify.spectra import cancel_orthonormal, cancel_pair, sum_spectrum

Rule = Callable[[Product], Product | None]


def simplify_product(
    product: Product, inlinable: Callable[[ir.Einsum, Product], bool], rules: Sequence[Rule]
) -> Product | None:
    """Apply the rules until none applies. Returns None if the product is zero or empty."""
    while True:
        position = next(
            (
                i
                for i, (node, _) in enumerate(product.factors)
                if isinstance(node, ir.Einsum) and inlinable(node, product)
            ),
            None,
        )
        if position is not None:
            product = product.inlined(position)
            continue
        if product.coefficient == 0 or sympy.S.Zero in product.sizes.values():
            return None
        if any(ir.is_zero(node) for node, _ in product.factors):
            return None
        simpler = next((new for rule in rules if (new := rule(product)) is not None), None)
        if simpler is None:
            return product
        product = simpler


def _factors_of_kind(product: Product, kind: Any) -> Iterator[tuple[int, Any, ir.Labels]]:
    """Yield the positions, nodes and labels of the factors of a kind."""
    for position, (node, labels) in enumerate(product.factors):
        if isinstance(node, kind):
            yield position, node, labels


def _pairs(product: Product, kind: Any) -> Iterator[tuple[int, int]]:
    """Yield the positions of ordered pairs of factors of a kind."""
    yield from itertools.permutations((i for i, _, _ in _factors_of_kind(product, kind)), 2)


def count_free_labels(product: Product) -> Product | None:
    """Multiply by the size of a summed label that no factor has, and drop the label."""
    counted = product.counted()
    return None if counted is product else counted


def drop_single_entry(product: Product) -> Product | None:
    """δ[i,j] = [i >= j] = 1 for axes of length 1."""
    for position, node, _ in _factors_of_kind(product, ir.Delta | ir.Triangle):
        if all(size == 1 for size in node.shape):
            above = isinstance(node, ir.Triangle) and node.offset > 0
            return product.without(position).scaled(sympy.Integer(not above))
    return None


def eliminate_delta(product: Product) -> Product | None:
    """δ[i,i] = 1; Σ_j δ[i,j] F[j] = F[i]; δ[i,j] F[j] = δ[i,j] F[i]."""
    for position, node, labels in _factors_of_kind(product, ir.Delta):
        i, j = labels
        cofactor = product.without(position)
        if i == j:
            return cofactor
        if j not in product.output:
            return cofactor.renamed(j, i)
        if i not in product.output:
            return cofactor.renamed(i, j)
        low, high = sorted(labels, key=product.output.index)
        if high in ir.labels_of(cofactor.factors):
            return cofactor.renamed(high, low).times((node, (low, high)))
        if labels != (low, high):
            return cofactor.times((node, (low, high)))
    return None


def merge_slices(product: Product) -> Product | None:
    """Merge equal selections of one axis to a delta, and a selection of a selection to one."""
    for p, q in _pairs(product, ir.Slice):
        (a, (i, j)), (b, (k, m)) = product.factors[p], product.factors[q]
        assert isinstance(a, ir.Slice) and isinstance(b, ir.Slice)
        if a is b and j == m:
            cofactor = product.without(q)
            return cofactor if i == k else cofactor.times((ir.Delta(a.shape[0]), (i, k)))
        if a is b and i == k:
            return product.without(q).times((ir.Delta(a.shape[1]), (j, m)))
        if j == k and product.is_private(j, 2):
            start = sympy.expand(b.start + b.step * a.start)
            merged = ir.Slice(a.shape[0], b.shape[1], start, a.step * b.step)
            return product.without(p, q, summed=j).times((merged, (i, m)))
        if j == m and _are_disjoint(a, b):
            return product.scaled(sympy.S.Zero)
    return None


def _are_disjoint(a: ir.Slice, b: ir.Slice) -> bool:
    """Return whether two selections provably have no index in common."""
    return a.step == b.step == 1 and any(
        sympy.expand(after.start - before.start - before.shape[0]).is_nonnegative
        for before, after in ((a, b), (b, a))
    )


def drop_slice(product: Product) -> Product | None:
    """Σ_j [j = s + t i] = 1; a selection of everything is a delta."""
    for position, node, labels in _factors_of_kind(product, ir.Slice):
        if product.is_private(labels[1], 1):
            return product.without(position, summed=labels[1])
        if node.shape[0] == node.shape[1] and node.start == 0 and node.step == 1:
            return product.without(position).times((ir.Delta(node.shape[0]), labels))
    return None


def merge_merges(product: Product) -> Product | None:
    """Replace equal factors that share the merged axis, or the two merged ones, by deltas; write
    two axes merged and then a third as the first and a merge of the others."""
    for p, q in _pairs(product, ir.Reshape | ir.Vech):
        (a, (k, i, j)), (b, (n, r, s)) = product.factors[p], product.factors[q]
        if a is b and k == n:
            deltas = ((ir.Delta(a.shape[1]), (i, r)), (ir.Delta(a.shape[2]), (j, s)))
            return product.without(q).times(*deltas)
        if a is b and (i, j) == (r, s):
            return product.without(q).times((ir.Delta(a.shape[0]), (k, n)))
        nested = isinstance(a, ir.Reshape) and isinstance(b, ir.Reshape) and i == n
        if nested and product.is_private(i, 2):
            inner = ir.Reshape(b.shape[2], a.shape[2])
            outer = ir.Reshape(b.shape[1], inner.shape[0])
            (label,) = product.fresh(1)
            cofactor = product.without(p, q, summed=i)
            return cofactor.times((outer, (k, r, label)), (inner, (label, s, j)))
    return None


def drop_reshape(product: Product) -> Product | None:
    """Drop merges summed over the merged axis, or over both others, merges of axes of length 1, and
    packed triangles that are summed over."""
    for position, (node, labels) in enumerate(product.factors):
        if not isinstance(node, ir.Reshape | ir.Vech) or len(set(labels)) < 3:
            continue
        merged, outer, inner = labels
        if product.is_private(merged, 1):
            cofactor = product.without(position, summed=merged)
            mask = ir.Triangle(*node.shape[1:])
            return cofactor.times((mask, (outer, inner))) if isinstance(node, ir.Vech) else cofactor
        if product.is_private(outer, 1) and product.is_private(inner, 1):
            return product.without(position, summed=outer).without(summed=inner)
        for unit_axis, label in ((1, inner), (2, outer)):
            if isinstance(node, ir.Reshape) and node.shape[unit_axis] == 1:
                delta = ir.Delta(node.shape[0])
                return product.without(position).times((delta, (merged, label)))
    return None


def merge_gathers(product: Product) -> Product | None:
    """Σ_j [j = t_i] = 1; the same pick twice at one i is a delta on j."""
    for p, node, (i, j) in _factors_of_kind(product, ir.Gather):
        if product.is_private(j, 1):
            return product.without(p, summed=j)
        for q, factor, (k, m) in _factors_of_kind(product, ir.Gather):
            if q > p and factor is node and k == i:
                return product.without(q).times((ir.Delta(node.shape[1]), (j, m)))
    return None


def merge_powers(product: Product) -> Product | None:
    """x^a x^b = x^(a+b), for factors with the same labels."""
    groups: dict[tuple[ir.Node, tuple[int, ...]], list[tuple[int, sympy.Expr]]] = {}
    for position, (node, labels) in enumerate(product.factors):
        base, exponent = ir.power_of(node)
        groups.setdefault((base, labels), []).append((position, exponent))
    for (base, labels), members in groups.items():
        total = sum((exponent for _, exponent in members), sympy.S.Zero)
        has_powers = len(members) > 1 and any(exponent != 1 for _, exponent in members)
        # squares and cubes stay products: other rules see their factors
        if not has_powers and not (len(members) > 3 and not isinstance(base, ir.Structural)):
            continue
        product = product.without(*(position for position, _ in members))
        if total in (0, 1, 2, 3):
            return product.times(*[(base, labels)] * int(total))
        return product.times((ir.Map(ir.slot(0) ** total, (base,)), labels))
    return None


def cancel_powers(product: Product) -> Product | None:
    """(1 - t²) / √(1 - t²) = √(1 - t²) and sinh(t) / cosh(t) = tanh(t), for functions of the same
    entries: where rounding makes the base 0, or cosh(t) overflows, the quotient would be nan."""
    maps = _factors_of_kind(product, ir.Map)
    for (p, node, labels), (q, other, other_labels) in itertools.permutations(maps, 2):
        if labels != other_labels or not _negative_powers(node):
            continue
        powers, multiplied = _powers(node), _powers(other)
        below = [*_negative_powers(node), *map(sine_of, _negative_powers(node))]
        if any(multiplied.get(base, sympy.S.Zero).is_positive for base in below):
            both = [*powers.items(), *multiplied.items()]
            expression = sympy.Mul(*(base**exponent for base, exponent in both))
            expression = with_tangents(expression)
            arrays = [Array(array) for array in _arrays(node) | _arrays(other)]
            slots = {_symbol(array.node): ir.slot(i) for i, array in enumerate(arrays)}
            fused = elementwise(expression.xreplace(slots), *arrays).node
            return product.without(p, q).times((fused, labels))
    return None


@lru_cache(maxsize=65536)
def _powers(node: ir.Node) -> dict[sympy.Expr, sympy.Expr]:
    """Return the exponents of the bases in a function of entries, by symbols of these."""
    return powers_of(_expression(node))


@lru_cache(maxsize=65536)
def _negative_powers(node: ir.Map) -> list[sympy.Expr]:
    """List the bases of negative powers, without numbers and entries: their powers merge anyway."""
    if not node.expression.has(sympy.Pow):
        return []
    bases = [base for base, exponent in _powers(node).items() if exponent.is_negative]
    return [base for base in bases if not (base.is_number or base.is_Symbol)]


def _expression(node: ir.Node) -> sympy.Expr:
    """Write nested functions of entries as one expression."""
    if not isinstance(node, ir.Map):
        return _symbol(node)
    inner = {ir.slot(i): _expression(argument) for i, argument in enumerate(node.arguments)}
    return node.expression.xreplace(inner)


def _arrays(node: ir.Node) -> dict[ir.Node, None]:
    """Return the arrays that nested functions of entries are applied to, in order."""
    if not isinstance(node, ir.Map):
        return {node: None}
    return {array: None for argument in node.arguments for array in _arrays(argument)}


def _symbol(node: ir.Node) -> sympy.Symbol:
    return sympy.Symbol(f"entry {node.key}", real=True)


def cancel_quotients(product: Product) -> Product | None:
    """a b / (a b c) = 1/c, entry by entry."""
    for quotient, (node, labels) in enumerate(product.factors):
        base, exponent = ir.power_of(node)
        if not isinstance(base, ir.Einsum) or base.contracted or not base.coefficient.is_number:
            continue
        if not exponent.is_Integer or exponent >= 0:
            continue
        inner = ir.relabelled(base.factors, labels)
        cancelled: list[int] = []
        divisors = []
        for factor, divisor in zip(inner, base.factors, strict=True):
            equal = (i for i, candidate in enumerate(product.factors) if candidate == factor)
            position = next((i for i in equal if i not in cancelled), None)
            if position is None:
                divisors.append(divisor)
            else:
                cancelled.append(position)
        if cancelled and (not divisors or exponent == -1):
            cofactor = product.without(quotient, *cancelled).scaled(1 / base.coefficient)
            below = ir.einsum(divisors, range(base.ndim), sizes=dict(enumerate(base.sizes)))
            powers = [] if exponent == -1 else [ir.Map(ir.slot(0) ** (exponent + 1), (base,))]
            powers += [ir.Map(1 / ir.slot(0), (below,))] if divisors else []
            return cofactor.times(*((power, labels) for power in powers))
    return None


INDICATORS = ((1 + sympy.sign(ir.slot(0))) / 2, scalar_functions.step(ir.slot(0)))
POSITIVE_PARTS = (sympy.Max(0, ir.slot(0)), scalar_functions.relu(ir.slot(0)))


def drop_indicator(product: Product) -> Product | None:
    """[t > 0] max(0, t) = max(0, t), for any value of the indicator at 0."""
    for position, node, labels in _factors_of_kind(product, ir.Map):
        if node.expression not in INDICATORS:
            continue
        for factor, factor_labels in product.factors:
            base, exponent = ir.power_of(factor)
            is_positive_part = isinstance(base, ir.Map) and base.expression in POSITIVE_PARTS
            is_same_entry = factor_labels == labels and base.children == node.children
            if is_positive_part and is_same_entry and exponent.is_positive:
                return product.without(position)
    return None


def cancel_orthogonal(product: Product) -> Product | None:
    """QᵀQ = Q Qᵀ = I for an orthogonal input."""
    for p, q in _pairs(product, ir.Leaf):
        node = product.factors[p][0]
        if node is product.factors[q][0] and "orthogonal" in facts(node):
            simpler = cancel_pair(product, p, q, (-2, -1))
            if simpler is not None:
                return simpler
    return None


def drop_triangle(product: Product) -> Product | None:
    """Drop a triangle's mask on a matrix of that triangle, or its second copy."""
    for position, node, labels in _factors_of_kind(product, ir.Triangle):
        if labels[0] == labels[1]:
            return product.without(position).scaled(sympy.Integer(node.offset <= 0))
        for place, (factor, axes) in enumerate(product.factors):
            if place == position:
                continue
            if factor is node and axes == labels:
                return product.without(position)
            if node.offset > 0 or isinstance(factor, ir.Structural):
                continue
            is_lower = axes[-2:] == labels and "lower" in facts(factor)
            is_upper = axes[-2:] == labels[::-1] and "upper" in facts(factor)
            if is_lower or is_upper:
                return product.without(position)
    return None


def recognise_softmax(product: Product) -> Product | None:
    """exp(z) / Σ exp(z) = softmax(z), over z's last axis."""
    for p, node, labels in _factors_of_kind(product, ir.Map):
        if node.expression != sympy.exp(ir.slot(0)) or not node.ndim:
            continue
        for q, (factor, axes) in enumerate(product.factors):
            base, exponent = ir.power_of(factor)
            if exponent == -1 and axes == labels[:-1] and _sums_last_axis(base, node):
                stack = node.shape[:-1]
                argument = (node.arguments[0], tuple(range(len(stack))))
                softmax = ir.Apply(SOFTMAX, (argument,), stack)
                return product.without(p, q).times((softmax, labels))
    return None


def _sums_last_axis(node: ir.Node, summand: ir.Node) -> bool:
    return (
        isinstance(node, ir.Einsum)
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
    cancel_powers,
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
"""Rules that hold only at the points of a curved structure, not along every direction there."""
