"""Functions of lengths and their derivatives, also where a length is zero.

‖x‖ has no derivative at 0, but functions of it may have derivatives of any order. So a function of
lengths, φ(‖x‖), is differentiated as a function of the square s = ‖x‖²: its gradient is 2 ψ'(s) x
and its Hessian 2 ψ'(s) I + 4 ψ''(s) x xᵀ with ψ(s) = φ(√s). `fused` writes all factors and terms
that depend on one length as one function ψ. `slopes` frees its derivatives of quotients that
cancel; `finite_parts` gives the remaining ones their limit at s = 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.arrays import Array, elementwise
from derivatrix.compiler.ir.graph import transformed
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.scalar_functions import INFINITE
from derivatrix.compiler.simplify import simplify
from derivatrix.compiler.simplify.occurrences import factor_occurrences
from derivatrix.compiler.simplify.squares import roots, slots_of, variables

MAX_FUSED_SIZE = 200
"""Most parts of an expression fused from several nodes."""


def fused(values: Sequence[ir.Node]) -> list[ir.Node]:
    """Write all functions of one length, entry by entry, as one `Map` of its square."""
    return transformed(values, _fused)


def _fused(node: ir.Node) -> ir.Node:
    match node:
        case ir.Map():
            node = _hoisted(node)
            lengths = _lengths(node)
            if any(_involves(a, lengths) for a in node.arguments if a not in lengths):
                return _Fusion(lengths).node(node) or node
        case ir.Sum():
            return _fused_sum(node)
        case ir.Einsum():
            return _fused_product(node)
    return node


def _fused_sum(node: ir.Sum) -> ir.Node:
    """Fuse the terms of a sum that depend on the same lengths."""
    terms: list[ir.Node] = []
    for term in node.terms:
        lengths = _lengths(term)
        alike = [part for part in terms if lengths & _lengths(part)]
        total = ir.Sum((*alike, term), node.shape)
        fusion = _Fusion(_lengths(total)).node(total) if alike else None
        if fusion is None:
            terms.append(term)
        else:
            terms = [*(part for part in terms if part not in alike), fusion]
    if len(terms) == len(node.terms):
        return node
    return ir.Sum(tuple(terms), node.shape) if len(terms) > 1 else terms[0]


def _hoisted(node: ir.Map) -> ir.Map:
    """Make squares of lengths that a function of entries computes, as x² + y², its arguments."""
    bases = [power.base for power in node.expression.atoms(sympy.Pow) if power.exp.is_Rational]
    completed = {
        base: square
        for base, argument in slots_of(node).items()
        if base in bases and (square := _completed_square(argument)) is not None
    }
    node = ir.Map(node.expression, tuple(completed.get(*item) for item in slots_of(node).items()))
    squares = [base for base, _, _ in variables(node) if not base.is_Symbol]
    if not squares:
        return node
    nodes = simplify([ir.Map(base, node.arguments) for base in squares])
    places = {base: ir.slot(place) for place, base in enumerate(squares, len(node.arguments))}
    return ir.Map(*ir.used_slots(node.expression.xreplace(places), (*node.arguments, *nodes)))


def _completed_square(node: ir.Node) -> ir.Node | None:
    """c Σ u² + c Σ v² ± 2 c Σ u v as c Σ (u ± v)², exactly 0 for u = ∓v; None for others."""
    if not isinstance(node, ir.Sum) or len(node.terms) != 3:
        return None
    terms = [simplify([term])[0] for term in node.terms]
    mixed = [t for t in terms if isinstance(t, ir.Einsum) and len(set(t.factors)) == 2]
    if len(mixed) != 1 or len(mixed[0].factors) != 2:
        return None
    (cross,) = mixed
    axes, scale = range(node.ndim), sympy.Abs(cross.coefficient) / 2
    inside = range(len(cross.sizes))
    sizes = dict(enumerate(cross.sizes))
    squares = [ir.einsum([side, side], axes, scale, sizes) for side in cross.factors]
    if {*simplify(squares), cross} != {*terms}:
        return None
    u, v = (ir.einsum([side], inside, sizes=sizes) for side in cross.factors)
    difference = ir.Sum((u, v.scaled(sympy.sign(cross.coefficient))), cross.sizes)
    return simplify([ir.einsum([(difference, inside)] * 2, axes, scale)])[0]


def _fused_product(node: ir.Einsum) -> ir.Node:
    """Fuse the factors of a product that have the same labels and depend on the same lengths."""
    product = Product.of(node)
    for labels in dict.fromkeys(axes for _, axes in node.factors):
        group = [position for position, (_, axes) in enumerate(product.factors) if axes == labels]
        lengths = frozenset().union(*(_lengths(product.factors[i][0]) for i in group))
        members = [i for i in group if _involves(product.factors[i][0], lengths)]
        cofactor = product.without(*members)
        squares, cofactor = _split_squares(cofactor, _sorted_by_key(lengths), labels)
        if not members or len(members) + len(squares) < 2:
            continue
        factors = [product.factors[i][0] for i in members] + squares
        axes = range(len(labels))
        group_product = ir.einsum([(factor, axes) for factor in factors], axes)
        if (fusion := _Fusion(lengths).node(group_product)) is not None:
            product = cofactor.times((fusion, labels))
    return node if product.factors == node.factors else product.node


def _split_squares(
    product: Product, lengths: Sequence[ir.Node], labels: ir.Labels
) -> tuple[list[ir.Node], Product]:
    """Split off the squares of lengths that occur, spliced in, at these labels. Returns them and
    the product of the other factors."""
    squares: list[ir.Node] = []
    for square in lengths:
        while isinstance(square, ir.Einsum) and square.contracted:
            place = next(factor_occurrences(product, square, dict(enumerate(labels))), None)
            if place is None:
                break
            squares.append(square)
            product = product.without(*place[0]).scaled(1 / square.coefficient)
    present = {*product.output, *ir.labels_of(product.factors)}
    sizes = {label: size for label, size in product.sizes.items() if label in present}
    return squares, replace(product, sizes=sizes)


@lru_cache(maxsize=65536)
def _lengths(node: ir.Node) -> frozenset[ir.Node]:
    """Return the squares and arrays whose roots and absolute values a node depends on."""
    match node:
        case ir.Map() if not node.expression.has(*INFINITE):
            slots = slots_of(node)
            absolute = [part.args[0] for part in node.expression.atoms(sympy.Abs)]
            bases = [*(power.base for power in roots(node)), *absolute]
            direct = frozenset(slots[base] for base in bases if base in slots)
            return direct.union(*map(_lengths, node.arguments))
        case ir.Sum():
            return frozenset().union(*map(_lengths, node.terms))
        case ir.Einsum() if node.coefficient.is_number:
            return frozenset().union(*map(_lengths, _entrywise(node)))
    return frozenset()


def _sorted_by_key(nodes: Iterable[ir.Node]) -> list[ir.Node]:
    return sorted(nodes, key=lambda node: node.key)


def _entrywise(node: ir.Einsum) -> list[ir.Node]:
    """List the factors of a product that have exactly its axes, in order."""
    axes = tuple(range(node.ndim))
    return [factor for factor, labels in node.factors if labels == axes]


@lru_cache(maxsize=65536)
def _involves(node: ir.Node, lengths: frozenset[ir.Node]) -> bool:
    """Return whether a node depends on the squares of these lengths, entry by entry."""
    if node in lengths:
        return True
    match node:
        # SymPy cannot order an infinite branch and its slope, which is nan, in one expression.
        case ir.Map() if not node.expression.has(*INFINITE):
            return any(_involves(argument, lengths) for argument in node.arguments)
        case ir.Sum():
            return any(_involves(term, lengths) for term in node.terms)
        case ir.Einsum() if node.coefficient.is_number:
            is_multiple = any(_multiple(node, square) is not None for square in lengths)
            return is_multiple or any(_involves(factor, lengths) for factor in _entrywise(node))
    return False


def _multiple(node: ir.Node, square: ir.Node) -> sympy.Expr | None:
    """Return c where node = c square; None for other nodes."""
    if not isinstance(node, ir.Einsum):
        return None
    if isinstance(square, ir.Einsum) and node.scaled(square.coefficient) is square:
        return node.coefficient / square.coefficient
    axes = tuple(range(node.ndim))
    return node.coefficient if node.factors == ((square, axes),) else None


class _Fusion:
    """Writes nodes as one function of squares of `lengths` and of other nodes."""

    def __init__(self, lengths: frozenset[ir.Node]) -> None:
        self.lengths = lengths
        self.squares = _sorted_by_key(lengths)
        self.arguments: list[ir.Node] = []

    def node(self, node: ir.Node) -> ir.Node | None:
        """Return the function as a node; None where its expression would be too long."""
        expression = self.expression(node)
        if sum(1 for _ in sympy.preorder_traversal(expression)) > MAX_FUSED_SIZE:
            return None
        return elementwise(expression, *map(Array, self.arguments)).node

    def expression(self, node: ir.Node) -> sympy.Expr:
        number = ir.literal(node)
        if number is not None and number.is_number:
            return number
        if not _involves(node, self.lengths) or node in self.lengths:
            return self._slot(node)
        match node:
            case ir.Map():
                slots = slots_of(node)
                return node.expression.xreplace(
                    {symbol: self.expression(part) for symbol, part in slots.items()}
                )
            case ir.Sum():
                involved = [term for term in node.terms if _involves(term, self.lengths)]
                constant_terms = tuple(term for term in node.terms if term not in involved)
                if constant_terms:
                    involved += simplify([ir.Sum(constant_terms, node.shape)])
                return sympy.Add(*map(self.expression, involved))
        assert isinstance(node, ir.Einsum)
        for square in self.squares:
            if (multiple := _multiple(node, square)) is not None:
                return multiple * self._slot(square)
        return self._product(node)

    def _product(self, node: ir.Einsum) -> sympy.Expr:
        product = Product.of(node)
        axes = tuple(range(node.ndim))
        inner = [
            place
            for place, (factor, labels) in enumerate(product.factors)
            if labels == axes and _involves(factor, self.lengths)
        ]
        squares, cofactor = _split_squares(product.without(*inner), self.squares, axes)
        parts = [self.expression(product.factors[place][0]) for place in inner]
        parts += [self._slot(square) for square in squares]
        if cofactor.factors:
            (outside,) = simplify([cofactor.scaled(1 / cofactor.coefficient).node])
            parts.append(self._slot(outside))
        return sympy.Mul(cofactor.coefficient, *parts)

    def _slot(self, node: ir.Node) -> sympy.Symbol:
        if node not in self.arguments:
            self.arguments.append(node)
        return ir.slot(self.arguments.index(node))
