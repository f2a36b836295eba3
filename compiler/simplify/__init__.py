"""Canonical form and simplification.

Nodes are rebuilt from the leaves up, rules applied at each, until nothing changes. What is used
once is spliced into the product that uses it; what is used several times stays one node, so
neither formulas nor kernels swell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import sympy

from derivatrix.compiler.ir.graph import rebuilt, references
from derivatrix.compiler.ir.nodes import (
    Apply,
    Einsum,
    Map,
    Node,
    Reshape,
    Structural,
    Sum,
    is_zero,
    labels_of,
    relabelled,
    topological,
    zeros,
)
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.structure import canonical_factors
from derivatrix.compiler.simplify.functions import (
    APPLY_RULES,
    FINAL_APPLY_RULES,
    MAP_RULES,
)
from derivatrix.compiler.simplify.inverses import brings_inverse_together, meets_its_inverse
from derivatrix.compiler.simplify.log_softmax import with_log_softmax
from derivatrix.compiler.simplify.products import FINAL_RULES, RULES, simplify_product
from derivatrix.compiler.simplify.sigmoids import with_one_sigmoid

PASSES = 50
FACTORS = 10
"""A product is spliced into another up to so many factors, which keeps the derivatives of long
chains of products linear in their length."""

COMPARED_FACTORS = 40
"""Terms are compared as products of up to so many factors."""

SPLICED = 100
"""So many products are spliced into one to compare it."""

EXPANDED_TERMS = 24
"""A product of sums is multiplied out, where that frees deltas, up to so many terms."""


def simplify(roots: Sequence[Node], expand: bool = False, final: bool = False) -> list[Node]:
    """Equal expressions in canonical form.

    expand: multiply out sums that hold deltas, so that Jacobians and Hessians become sums of
    terms that say where they are nonzero. final: also use what holds only at the points of a
    curved structure (QᵀQ = I), after which the result must not be differentiated again.
    """
    current = list(roots)
    for _ in range(PASSES):
        simpler = _pass(current, expand, final)
        if simpler == current:
            return current
        current = simpler
    return current


def _pass(roots: list[Node], expand: bool, final: bool) -> list[Node]:
    order = topological(roots)
    uses: Counter[Node] = Counter(roots)
    for node in order:
        uses.update(references(node))
    inner = {
        term
        for node in order
        if isinstance(node, Sum)
        for term in node.terms
        if isinstance(term, Sum) and uses[term] == 1
    }  # which the sum that they are in makes flat, and simplifies once
    new: dict[Node, Node] = {}
    counts: Counter[Node] = Counter()
    simplifier = _Simplifier(counts, expand, final)
    for node in order:
        copy = rebuilt(node, new)
        new[node] = copy if node in inner else simplifier.simplify(copy)
        counts[new[node]] += uses[node]
    return [new[root] for root in roots]


class _Simplifier:
    """Simplifies single nodes; `uses` counts the references to each."""

    def __init__(self, uses: Counter[Node], expand: bool, final: bool) -> None:
        self.uses = uses
        self.expand = expand
        self.rules = RULES + FINAL_RULES if final else RULES
        self.apply_rules = APPLY_RULES + FINAL_APPLY_RULES if final else APPLY_RULES
        self.expanded: dict[Node, Node] = {}

    def simplify(self, node: Node) -> Node:
        match node:
            case Einsum():
                return self._product(Product.of(node))
            case Sum():
                return self._sum(node)
            case Map():
                return _first(MAP_RULES, node)
            case Apply():
                return _first((*self.apply_rules, *node.operation.rules), node)
        return node

    def _inlinable(self, node: Einsum, product: Product) -> bool:
        if _is_trivial(node) or (self.expand and _grows(node)):
            return True
        if brings_inverse_together(node, product) or _is_split_again(node, product):
            return True
        return self.uses[node] <= 1 and len(node.factors) + len(product.factors) <= FACTORS

    def _product(self, product: Product) -> Node:
        simpler = simplify_product(product, self._inlinable, self.rules)
        if simpler is None:
            return zeros(product.shape)
        if self._vanishes(simpler):
            return zeros(simpler.shape)
        position = self._distributable(simpler)
        if position is None:
            return _finished(simpler)
        total = simpler.factors[position][0]
        assert isinstance(total, Sum)
        terms = [self._product(simpler.with_factor(position, term)) for term in total.terms]
        return self._sum(Sum(tuple(terms), simpler.shape))

    def _vanishes(self, product: Product) -> bool:
        """Whether a product with a residual of an inverse is zero when it is multiplied out."""
        for position, (node, _) in enumerate(product.factors):
            if not isinstance(node, Sum) or not meets_its_inverse(node, product):
                continue
            terms = (product.with_factor(position, term).node for term in node.terms)
            expanded = tuple(self._expanded(term) for term in terms)
            if is_zero(self._sum(Sum(expanded, product.shape))):
                return True
        return False

    def _distributable(self, product: Product) -> int | None:
        """The position of a sum to multiply out: a lone one, or one whose deltas are freed."""
        sums = [i for i, (node, _) in enumerate(product.factors) if isinstance(node, Sum)]
        arrays = [node for node, _ in product.factors if not isinstance(node, Structural)]
        for position in sums:
            node = product.factors[position][0]
            assert isinstance(node, Sum)
            if len(arrays) == 1 and self.uses[node] <= 1:
                return position
            freed = _holds_delta(node) or (len(arrays) == 1 and node.ndim > 2)
            if self.expand and freed and len(node.terms) <= EXPANDED_TERMS:
                return position
        return None

    def _sum(self, node: Sum) -> Node:
        """Nested sums made flat, like terms collected, in canonical order."""
        found: dict[Node, tuple[Node, sympy.Expr]] = {}
        for term in self._flat(node.terms):
            monomial, coefficient = _split(term)
            key, factor = _split(self._expanded(monomial))
            known, total = found.get(key, (monomial, sympy.S.Zero))
            if known is not monomial:
                coefficient *= factor / _split(self._expanded(known))[1]
            found[key] = (known, sympy.expand(total + coefficient))
        terms = [_joined(monomial, total) for monomial, total in found.values() if total != 0]
        if not terms:
            return zeros(node.shape)
        if len(terms) == 1:
            return terms[0]
        if (fewer := with_one_sigmoid(terms, _difference)) is not None:
            return self._sum(Sum(tuple(fewer), node.shape))
        if (fewer := with_log_softmax(terms, self._product)) is not None:
            return self._sum(Sum(tuple(fewer), node.shape))
        return Sum(tuple(sorted(terms, key=lambda term: term.key)), node.shape)

    def _expanded(self, monomial: Node) -> Node:
        """The product with all products in it spliced in, shared or not: the same for equal
        terms, whatever they share with the rest."""
        if not isinstance(monomial, Einsum):
            return monomial
        if monomial not in self.expanded:
            product = simplify_product(Product.of(monomial), _short(), self.rules)
            self.expanded[monomial] = (
                zeros(monomial.shape) if product is None else _finished(product)
            )
        return self.expanded[monomial]

    def _flat(self, terms: Sequence[Node]) -> list[Node]:
        flat: list[Node] = []
        pending = [*reversed(terms)]
        while pending:
            term = pending.pop()
            if isinstance(term, Sum) and (self.uses[term] <= 1 or len(term.terms) < 2):
                pending.extend(reversed(term.terms))
            else:
                flat.append(term)
        return flat


def _difference(one: Node, other: Node) -> Node:
    return simplify([Sum((one, _joined(other, sympy.S.NegativeOne)), one.shape)])[0]


def _short() -> Callable[[Einsum, Product], bool]:
    """Whether to splice a product into another one: as long as that is short, and not too often,
    as squares of squares of squares, which powers keep short, would be."""
    left = iter(range(SPLICED))

    def short(node: Einsum, product: Product) -> bool:
        few = len(node.factors) + len(product.factors) <= COMPARED_FACTORS
        return few and next(left, None) is not None

    return short


def _first(rules: Sequence[Callable], node: Node) -> Node:
    return next((new for rule in rules if (new := rule(node)) is not None), node)


def _is_trivial(node: Einsum) -> bool:
    """Whether a product only scales, moves, repeats or selects entries of one array."""
    arrays = [factor for factor in node.factors if not isinstance(factor[0], Structural)]
    selected = labels_of(own for own in node.factors if isinstance(own[0], Structural))
    return len(arrays) < 2 and {*node.contracted} <= {*selected}


def _grows(node: Einsum) -> bool:
    """Whether a product has more axes than each of its factors, so that storing it and using
    it costs more than its factors do."""
    return node.ndim > max((factor.ndim for factor, _ in node.factors), default=0)


def _is_split_again(node: Einsum, product: Product) -> bool:
    """Whether a product splits an axis of one of its factors that this factor merges from the same
    two: spliced, as a Kronecker product among others, both merges are gone."""
    outer = next(labels for factor, labels in product.factors if factor is node)
    merged = {
        (factor, outer[labels[0]])
        for factor, labels in node.factors
        if isinstance(factor, Reshape) and labels[0] < node.ndim
    }
    return any((factor, labels[0]) in merged for factor, labels in product.factors if labels)


def _holds_delta(node: Sum) -> bool:
    """Whether a term is, or has as a factor, an array of zeros and ones."""
    factors = [f for term in node.terms if isinstance(term, Einsum) for f in term.children]
    return any(isinstance(part, Structural) for part in (*node.terms, *factors))


def _finished(product: Product) -> Node:
    """The product as a node: canonical labels, and no wrapping of a single factor."""
    numbers = {label: position for position, label in enumerate(product.output)}
    for label in product.sizes:
        numbers.setdefault(label, len(numbers))
    sizes = [product.sizes[label] for label in sorted(numbers, key=numbers.__getitem__)]
    ndim = len(product.output)
    ordered = canonical_factors(relabelled(product.factors, numbers), ndim, tuple(sizes))
    final: dict[int, sympy.Expr] = dict(enumerate(sizes[:ndim]))
    for node, labels in ordered:
        final.update(zip(labels, node.shape, strict=True))
    coefficient = sympy.expand(product.coefficient)
    if coefficient == 1 and len(ordered) == 1 and ordered[0][1] == tuple(range(ndim)):
        return ordered[0][0]
    shape = tuple(final[label] for label in range(len(final)))
    return Einsum(coefficient, tuple(ordered), shape, ndim)


def _split(term: Node) -> tuple[Node, sympy.Expr]:
    """A term as a node with coefficient 1 and a number."""
    if not isinstance(term, Einsum):
        return term, sympy.S.One
    return _joined(term, 1 / term.coefficient), term.coefficient


def _joined(monomial: Node, coefficient: sympy.Expr) -> Node:
    if coefficient == 1:
        return monomial
    if isinstance(monomial, Einsum):
        total = sympy.expand(monomial.coefficient * coefficient)
        if total == 1 and len(monomial.factors) == 1:
            factor, labels = monomial.factors[0]
            if labels == tuple(range(monomial.ndim)):
                return factor
        return monomial.scaled(total)
    labels = tuple(range(monomial.ndim))
    return Einsum(coefficient, ((monomial, labels),), monomial.shape, monomial.ndim)
