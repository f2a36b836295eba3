"""Functions of matrices that are written with eigenvalues and eigenvectors.

V diag(h(λ)) Vᵀ has derivatives where eigenvalues are repeated, though V has none: with B = Vᵀ dA V
they are V (L ∘ B) Vᵀ, where L holds the divided differences of h (Daleckii and Krein 1965). The
same holds for every index of an eigenvalue that stands at two eigenvectors, as both indices of L
do here, so derivatives of every order are made of divided differences; and for singular values, and
for V diag(h(λ)) V⁻¹ of a general matrix. These products are packed into operations before an
expression is differentiated, and unpacked afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sympy

from derivatrix.compiler.differentiate.spectral_products import (
    NEW,
    PRODUCT,
    VALUES_ALONE,
    VectorFactor,
    row_and_index,
    unpacked,
    vectors_of,
)
from derivatrix.compiler.ir.divided_differences import difference
from derivatrix.compiler.ir.graph import transformed
from derivatrix.compiler.ir.nodes import (
    Apply,
    Einsum,
    Factor,
    Labels,
    Map,
    Node,
    Sum,
    full,
    relabelled,
    slot,
)
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.operations.eigen import EIG
from derivatrix.compiler.operations.softmax import LOGSUMEXP, SOFTMAX
from derivatrix.runtime.errors import UnsupportedError

TERMS = 64
"""Sums in a product are multiplied out up to so many terms, where that frees eigenvectors."""


def pack(roots: Sequence[Node]) -> list[Node]:
    """The nodes with the products of eigenvectors packed into operations."""
    spectra: list[_Spectrum] = []

    def change(node: Node) -> Node:
        found = vectors_of(node)
        if found and not any(spectrum.is_own(found[0]) for spectrum in spectra):
            spectra.append(_Spectrum(found[0]))
        if isinstance(node, Einsum):
            for spectrum in spectra:
                node = spectrum.pack(node)
        return node

    return transformed(roots, change)


def unpack(roots: Sequence[Node]) -> list[Node]:
    """The nodes with those operations as products again."""

    def change(node: Node) -> Node:
        if isinstance(node, Apply) and node.operation is PRODUCT:
            node = unpacked(node)
        return _multiplied_out(node)

    return transformed(roots, change)


def _multiplied_out(node: Node) -> Node:
    """A product with the differential of one of those operations as a sum of products, which need
    not have as many axes on the way."""
    if not isinstance(node, Einsum):
        return node
    for position, (factor, _) in enumerate(node.factors):
        if isinstance(factor, Sum) and any(map(_holds_vectors, factor.terms)):
            terms = (node.with_factor(position, term) for term in factor.terms)
            return Sum(tuple(map(_multiplied_out, terms)), node.shape)
    return node


def _holds_vectors(node: Node) -> bool:
    factors = node.factors if isinstance(node, Einsum) else ()
    return node.ndim > 2 and any(vectors_of(factor) for factor, _ in factors)


class _Spectrum:
    """The eigenvalues and eigenvectors of one matrix, or of stacked ones, or the singular values
    and vectors; found with `one` of them."""

    def __init__(self, one: Apply) -> None:
        self.operation = one.operation
        self.arguments = one.arguments
        self.stack = one.stack
        self._axes: dict[Node, frozenset[int]] = {}

    def pack(self, node: Node) -> Node:
        """`node`, a product or a sum of them, with its products of eigenvectors as one operation;
        as it is where that is not possible."""
        if isinstance(node, Sum):
            return Sum(tuple(map(self.pack, node.terms)), node.shape)
        if not isinstance(node, Einsum) or not self._labels(node.factors):
            return node
        terms = []
        for product in self._expanded(Product.of(node)):
            found = self._packed(product)
            if found is None:
                return node
            terms.append(found.node)
        return terms[0] if len(terms) == 1 else Sum(tuple(terms), node.shape)

    def is_own(self, node: Node) -> bool:
        """Whether a node is of this decomposition."""
        if not isinstance(node, Apply):
            return False
        operation = VALUES_ALONE.get(node.operation, node.operation)
        own = (operation, node.arguments, node.stack)
        return own == (self.operation, self.arguments, self.stack)

    def vectors(self, node: Node, labels: Sequence[int]) -> VectorFactor | None:
        """A node with its labels as vectors, if it is vectors."""
        found = vectors_of(node)
        if not found or not self.is_own(found[0]):
            return None
        return found[1], *row_and_index(found[1], labels)

    def is_values(self, node: Node) -> bool:
        """Whether a node is the values."""
        return self.is_own(node) and vectors_of(node) is None

    def _axes_of(self, node: Node) -> frozenset[int]:
        """The axes of a node that run over eigenvalues."""
        if node not in self._axes:
            self._axes[node] = frozenset(self._find_axes(node))
        return self._axes[node]

    def _find_axes(self, node: Node) -> set[int]:
        if vectors := self.vectors(node, range(node.ndim)):
            return {vectors[2]}
        if self.is_own(node):
            return {node.ndim - 1}
        if isinstance(node, Einsum):
            return {label for label in self._labels(node.factors) if label < node.ndim}
        if isinstance(node, (Sum, Map)):
            return {axis for child in node.children for axis in self._axes_of(child)}
        if isinstance(node, Apply) and node.operation is SOFTMAX:
            argument, labels = node.arguments[0]
            last = argument.ndim - 1 in self._axes_of(argument)
            return {node.ndim - 1} if last and labels == tuple(range(len(node.stack))) else set()
        return set()

    def _labels(self, factors: Sequence[Factor]) -> set[int]:
        """The labels that run over eigenvalues."""
        return {own[axis] for node, own in factors for axis in self._axes_of(node)}

    def _expanded(self, product: Product) -> list[Product]:
        """Products that add up to this one, where no sum or product that shares a summed index of
        eigenvalues with others has an eigenvector or a sum in it; up to so many."""
        pending, done = [product], list[Product]()
        while pending:
            current = pending.pop()
            if len(pending) + len(done) > TERMS:
                return [product]
            position = self._to_multiply_out(current)
            if position is None:
                done.append(current)
                continue
            node = current.factors[position][0]
            assert isinstance(node, Einsum | Sum)
            pending += current.opened(position, node)
        return done

    def _to_multiply_out(self, product: Product) -> int | None:
        """The position of a factor to multiply out."""
        summed = self._labels(product.factors) - set(product.output)
        for position, (node, labels) in enumerate(product.factors):
            axes = self._axes_of(node)
            if any(labels[axis] in summed for axis in axes) and self._opens(node):
                return position
        return None

    def _opens(self, node: Node) -> bool:
        """Whether a product or sum has eigenvectors or a sum over an index in it."""
        if not isinstance(node, (Einsum, Sum)):
            return False
        if isinstance(node, Einsum) and node.contracted:
            return True
        return any(
            self.vectors(child, range(child.ndim)) or self._opens(child) for child in node.children
        )

    def _packed(self, product: Product) -> Product | None:
        """A product with its eigenvectors, all that have two at an index, as one operation."""
        places: dict[int, list[int]] = {}
        outer: dict[int, Labels] = {}
        for position, (node, labels) in enumerate(product.factors):
            if vectors := self.vectors(node, labels):
                places.setdefault(vectors[2], []).append(position)
                outer.setdefault(vectors[2], labels[:-2])
        chosen = [
            label
            for label, positions in places.items()
            if label not in product.output
            and self._are_a_pair([product.factors[position] for position in positions])
            and all(product.factors[position][1][:-2] == outer[label] for position in positions)
            and outer[label] == next(iter(outer.values()))
        ]
        while chosen:
            weight = _Weight(self, chosen, outer[chosen[0]])
            failed = weight.read(product)
            if failed is None:
                return weight.packed(product, [places[label] for label in chosen])
            chosen = [label for label in chosen if label not in failed]
        return None

    def _are_a_pair(self, factors: Sequence[Factor]) -> bool:
        """Whether vectors at one index are two, and those of `EIG` V and V⁻¹."""
        inverted = [node for node, _ in factors if not self.is_own(node)]
        return len(factors) == 2 and len(inverted) == (self.operation is EIG)


class _Weight:
    """What a product holds beside the eigenvectors, as an expression of eigenvalues, one for each
    label in `chosen`, and of other arrays. `outer`: the labels of the stacked axes."""

    def __init__(self, spectrum: _Spectrum, chosen: Sequence[int], outer: Labels) -> None:
        self.spectrum = spectrum
        self.chosen = chosen
        self.outer = outer
        self.others: list[Factor] = []
        self.positions: list[int] = []
        self.expression: sympy.Expr = sympy.S.One

    def read(self, product: Product) -> set[int] | None:
        """Read the product's factors; the labels that cannot be chosen, None if all can be."""
        for position, (node, labels) in enumerate(product.factors):
            vectors = self.spectrum.vectors(node, labels)
            here = {*labels[:-2], vectors[1]} if vectors else set(labels)
            here &= set(self.chosen)
            if not here:
                continue
            part = None if vectors else self._expression(node, labels)
            if part is None:
                return here
            self.positions.append(position)
            self.expression *= part
        for i, label in enumerate(self.chosen):
            try:
                difference(self.expression, slot(i), NEW)
            except UnsupportedError:
                return {label}
        return None

    def _expression(self, node: Node, labels: Labels) -> sympy.Expr | None:
        here = set(labels) & set(self.chosen)
        if self.spectrum.is_values(node) and here:
            return slot(self.chosen.index(labels[-1])) if labels[:-1] == self.outer else None
        if not here:
            return self._other(node, labels)
        if isinstance(node, Apply) and node.operation is SOFTMAX:
            inner = self._expression(node.arguments[0][0], labels)
            total = Apply(LOGSUMEXP, node.arguments, node.stack)
            whole = self._other(total, labels[:-1])
            return None if inner is None else sympy.exp(inner - whole)
        if isinstance(node, Map):
            parts = [self._expression(argument, labels) for argument in node.arguments]
            slots = {slot(i): part for i, part in enumerate(parts)}
            return None if None in parts else node.expression.xreplace(slots)
        if isinstance(node, Sum):
            parts = [self._expression(term, labels) for term in node.terms]
            return None if None in parts else sympy.Add(*parts)
        if isinstance(node, Einsum) and not node.contracted:
            parts = [
                self._expression(factor, own) for factor, own in relabelled(node.factors, labels)
            ]
            number = node.coefficient.is_number
            parts.append(node.coefficient if number else self._other(full(node.coefficient), ()))
            return None if None in parts else sympy.Mul(*parts)
        return None

    def _other(self, node: Node, labels: Labels) -> sympy.Symbol:
        if (node, labels) not in self.others:
            self.others.append((node, labels))
        return slot(len(self.chosen) + self.others.index((node, labels)))

    def packed(self, product: Product, places: Sequence[Sequence[int]]) -> Product:
        """The product with the operation instead of the factors that were read."""
        stack = list(dict.fromkeys([*self.outer, *(own for _, o in self.others for own in o)]))
        (matrix, own) = self.spectrum.arguments[0]
        arguments = [(matrix, tuple(stack.index(self.outer[label]) for label in own))]
        arguments += [(node, tuple(map(stack.index, labels))) for node, labels in self.others]
        sizes = tuple(product.sizes[label] for label in stack)
        factors = [product.factors[position] for pair in places for position in pair]
        vectors = [found for factor in factors if (found := self.spectrum.vectors(*factor))]
        outputs = tuple(output for output, _, _ in vectors)
        parameters = (self.expression, self.spectrum.operation, outputs)
        whole = Apply(PRODUCT, tuple(arguments), sizes, parameters)
        rows = [row for _, row, _ in vectors]
        used = [*self.positions, *(position for pair in places for position in pair)]
        kept = tuple(f for i, f in enumerate(product.factors) if i not in used)
        left = {k: v for k, v in product.sizes.items() if k not in self.chosen}
        return replace(product, factors=kept, sizes=left).times((whole, (*stack, *rows)))
