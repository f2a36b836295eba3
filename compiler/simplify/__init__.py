"""Canonical form and simplification.

Nodes are rebuilt from the leaves up, and rules applied at each, until nothing changes. A product
used once is spliced into the product that uses it; one used several times stays a node, so that
neither formulas nor kernels grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.graph import rebuilt, references
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.structure import canonical_factors
from derivatrix.compiler.simplify.complements import terms_with_complement
from derivatrix.compiler.simplify.functions import (
    APPLY_RULES,
    FINAL_APPLY_RULES,
    MAP_RULES,
)
from derivatrix.compiler.simplify.inverses import brings_inverse_together, meets_its_inverse
from derivatrix.compiler.simplify.log_softmax import with_log_softmax
from derivatrix.compiler.simplify.products import FINAL_RULES, RULES, simplify_product
from derivatrix.compiler.simplify.sigmoids import with_one_sigmoid

MAX_PASSES = 50
"""Most passes over a graph, should rules undo each other."""

MAX_SPLICED_FACTORS = 10
"""Most factors of a product into which another is spliced: derivatives of long chains of products
stay linear in their length."""

MAX_COMPARED_FACTORS = 40
"""Most factors of products by which terms are compared."""

MAX_SPLICES = 100
"""Most products spliced into one to compare it."""

MAX_EXPANDED_TERMS = 24
"""Most terms of a sum that is multiplied out to free its deltas."""


def simplify(roots: Sequence[ir.Node], expand: bool = False, final: bool = False) -> list[ir.Node]:
    """Rewrite expressions in canonical form.

    expand: multiply out sums that hold deltas, so that Jacobians and Hessians become sums of terms
    that show where they are nonzero
    final: also use identities that hold only at the points of a curved structure (QᵀQ = I), after
    which the result must not be differentiated again
    """
    current = list(roots)
    for _ in range(MAX_PASSES):
        simpler = _pass(current, expand, final)
        if simpler == current:
            return current
        current = simpler
    return current


def _pass(roots: list[ir.Node], expand: bool, final: bool) -> list[ir.Node]:
    order = ir.topological(roots)
    uses: Counter[ir.Node] = Counter(roots)
    for node in order:
        uses.update(references(node))
    # sums in sums: the outer one flattens them, and simplifies their terms only once
    inner = {
        term
        for node in order
        if isinstance(node, ir.Sum)
        for term in node.terms
        if isinstance(term, ir.Sum) and uses[term] == 1
    }
    new: dict[ir.Node, ir.Node] = {}
    counts: Counter[ir.Node] = Counter()
    simplifier = _Simplifier(counts, expand, final)
    for node in order:
        copy = rebuilt(node, new)
        new[node] = copy if node in inner else simplifier.simplify(copy)
        counts[new[node]] += uses[node]
    return [new[root] for root in roots]


class _Simplifier:
    """Simplifies single nodes; `uses` counts the references to each."""

    def __init__(self, uses: Counter[ir.Node], expand: bool, final: bool) -> None:
        self.uses = uses
        self.expand = expand
        self.rules = RULES + FINAL_RULES if final else RULES
        self.apply_rules = APPLY_RULES + FINAL_APPLY_RULES if final else APPLY_RULES
        self.comparable_forms: dict[ir.Node, ir.Node] = {}

    def simplify(self, node: ir.Node) -> ir.Node:
        match node:
            case ir.Einsum():
                return self._product(Product.of(node))
            case ir.Sum():
                return self._sum(node)
            case ir.Map():
                return _apply_first(MAP_RULES, node)
            case ir.Apply():
                return _apply_first((*self.apply_rules, *node.operation.rules), node)
        return node

    def _inlinable(self, node: ir.Einsum, product: Product) -> bool:
        # a product with more axes than its factors has costs more to store than these
        grows = node.ndim > max((factor.ndim for factor, _ in node.factors), default=0)
        if _is_trivial(node) or (self.expand and grows):
            return True
        if brings_inverse_together(node, product) or _is_split_again(node, product):
            return True
        is_short = len(node.factors) + len(product.factors) <= MAX_SPLICED_FACTORS
        return self.uses[node] <= 1 and is_short

    def _product(self, product: Product) -> ir.Node:
        simpler = simplify_product(product, self._inlinable, self.rules)
        if simpler is None:
            return ir.zeros(product.shape)
        if self._vanishes(simpler):
            return ir.zeros(simpler.shape)
        position = self._distributable(simpler)
        if position is None:
            return _finished(simpler)
        total = simpler.factors[position][0]
        assert isinstance(total, ir.Sum)
        terms = [self._product(simpler.with_factor(position, term)) for term in total.terms]
        return self._sum(ir.Sum(tuple(terms), simpler.shape))

    def _vanishes(self, product: Product) -> bool:
        """Return whether a product with a residual of an inverse is zero, multiplied out."""
        for position, (node, _) in enumerate(product.factors):
            if not isinstance(node, ir.Sum) or not meets_its_inverse(node, product):
                continue
            terms = (product.with_factor(position, term).node for term in node.terms)
            comparable = tuple(self._comparable(term) for term in terms)
            if ir.is_zero(self._sum(ir.Sum(comparable, product.shape))):
                return True
        return False

    def _distributable(self, product: Product) -> int | None:
        """Return the position of a sum to multiply out: one that is the only array, or one whose
        deltas are thereby freed."""
        sums = [i for i, (node, _) in enumerate(product.factors) if isinstance(node, ir.Sum)]
        arrays = [node for node, _ in product.factors if not isinstance(node, ir.Structural)]
        for position in sums:
            node = product.factors[position][0]
            assert isinstance(node, ir.Sum)
            if len(arrays) == 1 and self.uses[node] <= 1:  # its terms cost no more
                return position
            frees_deltas = _holds_delta(node) or (len(arrays) == 1 and node.ndim > 2)
            if self.expand and frees_deltas and len(node.terms) <= MAX_EXPANDED_TERMS:
                return position
        return None

    def _sum(self, node: ir.Sum) -> ir.Node:
        """Flatten nested sums and collect like terms, in canonical order."""
        collected: dict[ir.Node, tuple[ir.Node, sympy.Expr]] = {}
        for term in self._flat(node.terms):
            monomial, coefficient = _split(term)
            key, factor = _split(self._comparable(monomial))
            like, total = collected.get(key, (monomial, sympy.S.Zero))
            if like is not monomial:
                coefficient *= factor / _split(self._comparable(like))[1]
            collected[key] = (like, sympy.expand(total + coefficient))
        terms = [_scaled(monomial, total) for monomial, total in collected.values() if total != 0]
        if not terms:
            return ir.zeros(node.shape)
        if len(terms) == 1:
            return terms[0]
        if (fewer := with_one_sigmoid(terms, _difference)) is not None:
            return self._sum(ir.Sum(tuple(fewer), node.shape))
        if (fewer := with_log_softmax(terms, self._product)) is not None:
            return self._sum(ir.Sum(tuple(fewer), node.shape))
        if (fewer := terms_with_complement(terms)) is not None:
            return self._sum(ir.Sum(tuple(fewer), node.shape))
        return ir.Sum(tuple(sorted(terms, key=lambda term: term.key)), node.shape)

    def _comparable(self, monomial: ir.Node) -> ir.Node:
        """Splice in all products, shared or not, so that equal terms become one node."""
        if not isinstance(monomial, ir.Einsum):
            return monomial
        if monomial not in self.comparable_forms:
            product = simplify_product(Product.of(monomial), _short(), self.rules)
            form = ir.zeros(monomial.shape) if product is None else _finished(product)
            self.comparable_forms[monomial] = form
        return self.comparable_forms[monomial]

    def _flat(self, terms: Sequence[ir.Node]) -> list[ir.Node]:
        flat: list[ir.Node] = []
        pending = [*reversed(terms)]
        while pending:
            term = pending.pop()
            if isinstance(term, ir.Sum) and (self.uses[term] <= 1 or len(term.terms) < 2):
                pending.extend(reversed(term.terms))
            else:
                flat.append(term)
        return flat


def _difference(x: ir.Node, y: ir.Node) -> ir.Node:
    return simplify([ir.Sum((x, _scaled(y, sympy.S.NegativeOne)), x.shape)])[0]


def _short() -> Callable[[ir.Einsum, Product], bool]:
    """Return a condition for splicing that bounds the factors, and the number of splices: squares
    of squares of squares stay short as powers, but would be spliced without end."""
    budget = iter(range(MAX_SPLICES))

    def short(node: ir.Einsum, product: Product) -> bool:
        is_short = len(node.factors) + len(product.factors) <= MAX_COMPARED_FACTORS
        return is_short and next(budget, None) is not None

    return short


def _apply_first(rules: Sequence[Callable], node: ir.Node) -> ir.Node:
    """Apply the first rule that changes the node."""
    return next((new for rule in rules if (new := rule(node)) is not None), node)


def _is_trivial(node: ir.Einsum) -> bool:
    """Return whether a product only scales, moves, repeats or selects entries of one array."""
    arrays = [factor for factor in node.factors if not isinstance(factor[0], ir.Structural)]
    selecting = [factor for factor in node.factors if isinstance(factor[0], ir.Structural)]
    return len(arrays) < 2 and {*node.contracted} <= {*ir.labels_of(selecting)}


def _is_split_again(node: ir.Einsum, product: Product) -> bool:
    """Return whether a product splits an axis of one of its factors that this factor merges from
    the same two axes: after splicing, as of Kronecker products, both merges cancel."""
    outer = next(labels for factor, labels in product.factors if factor is node)
    merged = {
        (factor, outer[labels[0]])
        for factor, labels in node.factors
        if isinstance(factor, ir.Reshape) and labels[0] < node.ndim
    }
    return any((factor, labels[0]) in merged for factor, labels in product.factors if labels)


def _holds_delta(node: ir.Sum) -> bool:
    """Return whether a term is, or has as a factor, a structural array that takes no entries of
    another array. With slices multiplied out, squares of x[1:] - x[:n-1] would cancel."""
    return any(
        isinstance(term, ir.Structural) or (isinstance(term, ir.Einsum) and _has_delta(term))
        for term in node.terms
    )


def _has_delta(node: ir.Einsum) -> bool:
    arrays = [factor for factor in node.factors if not isinstance(factor[0], ir.Structural)]
    contracted = {*node.contracted} & {*ir.labels_of(arrays)}
    return any(
        isinstance(factor, ir.Structural) and contracted.isdisjoint(labels)
        for factor, labels in node.factors
    )


def _finished(product: Product) -> ir.Node:
    """Convert the product to a node with canonical labels; a lone factor stays as it is."""
    numbers = {label: position for position, label in enumerate(product.output)}
    for label in product.sizes:
        numbers.setdefault(label, len(numbers))
    sizes = [product.sizes[label] for label in sorted(numbers, key=numbers.__getitem__)]
    ndim = len(product.output)
    ordered = canonical_factors(ir.relabelled(product.factors, numbers), ndim, tuple(sizes))
    dimensions: dict[int, sympy.Expr] = dict(enumerate(sizes[:ndim]))  # of canonical labels
    for node, labels in ordered:
        dimensions.update(zip(labels, node.shape, strict=True))
    coefficient = sympy.expand(product.coefficient)
    if coefficient == 1 and len(ordered) == 1 and ordered[0][1] == tuple(range(ndim)):
        return ordered[0][0]
    shape = tuple(dimensions[label] for label in range(len(dimensions)))
    return ir.Einsum(coefficient, tuple(ordered), shape, ndim)


def _split(term: ir.Node) -> tuple[ir.Node, sympy.Expr]:
    """Split a term into a node with coefficient 1 and a number."""
    if not isinstance(term, ir.Einsum):
        return term, sympy.S.One
    return _scaled(term, 1 / term.coefficient), term.coefficient


def _scaled(monomial: ir.Node, coefficient: sympy.Expr) -> ir.Node:
    if coefficient == 1:
        return monomial
    if isinstance(monomial, ir.Einsum):
        total = sympy.expand(monomial.coefficient * coefficient)
        if total == 1 and len(monomial.factors) == 1:
            factor, labels = monomial.factors[0]
            if labels == tuple(range(monomial.ndim)):
                return factor
        return monomial.scaled(total)
    labels = tuple(range(monomial.ndim))
    return ir.Einsum(coefficient, ((monomial, labels),), monomial.shape, monomial.ndim)
