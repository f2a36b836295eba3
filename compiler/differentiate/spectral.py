"""Functions of matrices that are written with eigenvalues and eigenvectors.

V diag(h(λ)) Vᵀ has derivatives where eigenvalues are repeated, though V has none: with B = Vᵀ dA V
they are V (L ∘ B) Vᵀ, where L holds the divided differences of h (Daleckii and Krein 1965). The
same holds for every index of an eigenvalue that stands at two eigenvectors, as both indices of L
do here, so derivatives of every order are made of divided differences; and for singular values, and
for V diag(h(λ)) V⁻¹ of a general matrix. Where h has constants c as well, as the zeros and ones of
a spectral projector, they hold where eigenvalues of equal c are repeated (`ir.spectral_weights`).
These products are packed into operations before an expression is differentiated, and unpacked
afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import sympy

from derivatrix.compiler.differentiate.spectral_products import (
    NEW,
    PRODUCT,
    VALUES_ALONE,
    VectorFactor,
    number,
    row_and_index,
    unpacked,
    vectors_of,
)
from derivatrix.compiler.ir.divided_differences import difference
from derivatrix.compiler.ir.graph import transformed
from derivatrix.compiler.ir.nodes import (
    Apply,
    Delta,
    Einsum,
    Factor,
    Gather,
    Labels,
    Leaf,
    Map,
    Node,
    Slice,
    Sum,
    einsum,
    full,
    labels_of,
    relabelled,
    slot,
    topological,
)
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.scalar_functions import PIECEWISE_CONSTANT, derivative, step
from derivatrix.compiler.ir.spectral_weights import LEVEL, Constant, gathered
from derivatrix.compiler.operations.eigen import EIG
from derivatrix.compiler.operations.gaps import ROUNDING_LEVEL
from derivatrix.compiler.operations.softmax import LOGSUMEXP, SOFTMAX
from derivatrix.compiler.simplify.products import eliminate_delta, merge_gathers, merge_slices
from derivatrix.runtime.errors import UnsupportedError

JUMPING = (*PIECEWISE_CONSTANT, step)
"""Functions that may make a constant of what varies."""

TERMS = 64
"""Sums in a product are multiplied out up to so many terms, where that frees eigenvectors."""


def pack(roots: Sequence[Node]) -> list[Node]:
    """The nodes with the products of eigenvectors packed into operations."""
    spectra: list[_Spectrum] = []
    variation = _Variation()

    def change(node: Node) -> Node:
        found = vectors_of(node)
        if found and not any(spectrum.is_own(found[0]) for spectrum in spectra):
            spectra.append(_Spectrum(found[0], variation))
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


class _Variation:
    """The nodes that vary with any input; signs and steps do not."""

    def __init__(self) -> None:
        self._known: dict[Node, bool] = {}

    def varies(self, root: Node) -> bool:
        if root not in self._known:
            for node in topological([root]):
                self._known.setdefault(node, self._varies(node))
        return self._known[root]

    def _varies(self, node: Node) -> bool:
        if isinstance(node, Leaf):
            return True
        if isinstance(node, Apply) and node.operation is ROUNDING_LEVEL:
            return False
        moving = [place for place, child in enumerate(node.children) if self._known[child]]
        if isinstance(node, Map) and node.expression.has(*JUMPING):
            return any(derivative(node.expression, slot(place)) != 0 for place in moving)
        return bool(moving)


class _Spectrum:
    """The eigenvalues and eigenvectors of one matrix, or of stacked ones, or the singular values
    and vectors; found with `one` of them. variation: which other nodes are constants."""

    def __init__(self, one: Apply, variation: _Variation) -> None:
        self.variation = variation
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
            found = self._packed(_selections_merged(product))
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
            pending += current.multiplied_out(position, node)
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


def _selections_merged(product: Product) -> Product:
    """A product with equal selections of one axis, and those of one entry each, merged, and with a
    diagonal matrix as a vector and a delta."""
    single: dict[Node, int] = {}
    for position, (node, labels) in enumerate(product.factors):
        if isinstance(node, Slice) and node.shape[0] == 1 and labels[0] in product.summed:
            label = single.setdefault(node, labels[0])
            product = product if label == labels[0] else product.renamed(labels[0], label)
        if isinstance(node, Sum) and (vector := _diagonal(node)) is not None:
            labels = product.factors[position][1]
            product = product.with_factor(position, Delta(node.shape[0])).times(
                (vector, labels[:1])
            )
    rules = (merge_slices, merge_gathers, eliminate_delta)
    while simpler := next((new for rule in rules if (new := rule(product)) is not None), None):
        product = simpler
    return product


def _diagonal(node: Node) -> Node | None:
    """The vector v of a matrix that is written as a sum of diag(v); None for others."""
    if node.ndim != 2:
        return None
    if isinstance(node, Sum):
        vectors = [_diagonal(term) for term in node.terms]
        return None if None in vectors else Sum(tuple(filter(None, vectors)), node.shape[:1])
    factors = _factors(node, (0, 1))
    left = [(factor, own) for factor, own in factors if not isinstance(factor, Delta)]
    if len(left) != len(factors) - 1 or (Delta(node.shape[0]), (0, 1)) not in factors:
        return None
    moved = [(factor, tuple(0 if label == 1 else label for label in own)) for factor, own in left]
    coefficient = node.coefficient if isinstance(node, Einsum) else sympy.S.One
    return einsum(moved, (0,), coefficient, {0: node.shape[0]})


def _factors(node: Node, labels: Labels) -> list[Factor]:
    """The factors of a node with labels; those that it sums over are negative."""
    if not isinstance(node, Einsum):
        return [(node, labels)]
    return list(relabelled(node.factors, (*labels, *range(-len(node.contracted), 0))))


class _Weight:
    """What a product holds beside the eigenvectors, as an expression of eigenvalues, one for each
    label in `chosen`, of vectors over the eigenvalues that do not vary, and of other arrays.
    `outer`: the labels of the stacked axes."""

    def __init__(self, spectrum: _Spectrum, chosen: Sequence[int], outer: Labels) -> None:
        self.spectrum = spectrum
        self.chosen = chosen
        self.outer = outer
        self.constants: list[Factor] = []
        self.others: list[Factor] = []
        self.positions: list[int] = []
        self.expression: sympy.Expr = sympy.S.One
        self.selections: dict[int, Factor] = {}

    def read(self, product: Product) -> set[int] | None:
        """Read the product's factors; the labels that cannot be chosen, None if all can be."""
        self.selections = self._selections(product)
        for position, (node, labels) in enumerate(product.factors):
            vectors = self.spectrum.vectors(node, labels)
            here = self._indices({*labels[:-2], vectors[1]} if vectors else labels)
            if not here:
                continue
            part = None if vectors else self._expression(node, labels)
            if part is None:
                return here
            self.positions.append(position)
            self.expression *= part
        if self.constants:
            self.expression = gathered(self.expression)
        for i, label in enumerate(self.chosen):
            try:
                difference(self.expression, slot(i), NEW)
            except UnsupportedError:
                return {label}
        return None

    def _selections(self, product: Product) -> dict[int, Factor]:
        """The summed labels that run over some of the eigenvalues at a chosen label, and what
        selects these."""
        found: dict[int, list[Factor]] = {}
        for node, labels in product.factors:
            some = isinstance(node, Slice) or (
                isinstance(node, Gather) and len(set(node.table)) == len(node.table)
            )
            if some and labels[1] in self.chosen and labels[0] in product.summed:
                found.setdefault(labels[0], []).append((node, labels))
        return {label: own[0] for label, own in found.items() if len(own) == 1}

    def _indices(self, labels: Iterable[int]) -> set[int]:
        """The chosen labels among these, and those of which these select some."""
        named = (self.selections[i][1][1] if i in self.selections else i for i in labels)
        return {label for label in named if label in self.chosen}

    def _expression(self, node: Node, labels: Labels) -> sympy.Expr | None:
        factors = _factors(node, labels)
        here = self._indices({label for _, own in factors for label in own} & {*labels})
        if self.spectrum.is_values(node) and here:
            whole = labels[:-1] == self.outer and labels[-1] in self.chosen
            return slot(self.chosen.index(labels[-1])) if whole else None
        if not here and not self._indices(labels):
            return self._other(node, labels)
        if len(here) == 1 and not self.spectrum.variation.varies(node):
            return self._constant(node, labels, *here)
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
        if isinstance(node, Einsum):
            inner = self._without_selections(factors, labels)
            if inner is None:
                return None
            parts = [self._expression(factor, own) for factor, own in inner]
            plain = node.coefficient.is_number
            parts.append(node.coefficient if plain else self._other(full(node.coefficient), ()))
            return None if None in parts else sympy.Mul(*parts)
        return None

    def _without_selections(self, factors: Sequence[Factor], outer: Labels) -> list[Factor] | None:
        """The factors of a product with the labels `outer`, without those that select entries which
        one of these says, and with the label of all eigenvalues for those; None where other labels
        are left."""
        names = {label: label for _, own in factors for label in own}
        left: list[Factor] = []
        for factor, own in factors:
            if own[:1] and own[0] in outer and self._selects(own[0], factor):
                names[own[1]] = self.selections[own[0]][1][1]
            else:
                left.append((factor, own))
        moved = relabelled(left, names)
        known = {*outer, *self.chosen}
        return list(moved) if all(known.issuperset(own) for _, own in moved) else None

    def _selects(self, label: int, node: Node) -> bool:
        return label in self.selections and self.selections[label][0] is node

    def _constant(self, node: Node, labels: Labels, index: int) -> sympy.Expr | None:
        """A factor that does not vary and has one label of eigenvalues, as a vector over these."""
        factors = _factors(node, labels)
        coefficient = node.coefficient if isinstance(node, Einsum) else sympy.S.One
        for label in labels:
            if label in self.selections and not self._selects(label, node):
                factors.append(self.selections[label])
        stack = tuple(label for label in self.outer if label in labels)
        if {*labels_of(factors)} & {*labels} - {*stack, index} - self.selections.keys():
            return None
        vector = einsum(factors, (*stack, index), coefficient), stack
        if vector not in self.constants:
            self.constants.append(vector)
        return Constant(self.constants.index(vector), self.chosen.index(index))

    def _other(self, node: Node, labels: Labels) -> sympy.Symbol:
        if isinstance(node, Apply) and node.operation is ROUNDING_LEVEL:
            ((values, own),) = node.arguments
            if self.spectrum.is_values(values) and (labels, own) == (
                self.outer,
                (*range(len(own)),),
            ):
                return LEVEL
        if (node, labels) not in self.others:
            self.others.append((node, labels))
        return number(self.others.index((node, labels)))

    def packed(self, product: Product, places: Sequence[Sequence[int]]) -> Product:
        """The product with the operation instead of the factors that were read."""
        others = [*self.constants, *self.others]
        stack = list(dict.fromkeys([*self.outer, *(own for _, o in others for own in o)]))
        (matrix, own) = self.spectrum.arguments[0]
        arguments = [(matrix, tuple(stack.index(self.outer[label]) for label in own))]
        arguments += [(node, tuple(map(stack.index, labels))) for node, labels in others]
        sizes = tuple(product.sizes[label] for label in stack)
        factors = [product.factors[position] for pair in places for position in pair]
        vectors = [found for factor in factors if (found := self.spectrum.vectors(*factor))]
        outputs = tuple(output for output, _, _ in vectors)
        constants = len(self.constants)
        parameters = (self.expression, self.spectrum.operation, outputs, constants)
        whole = Apply(PRODUCT, tuple(arguments), sizes, parameters)
        rows = [row for _, row, _ in vectors]
        used = [*self.positions, *(position for pair in places for position in pair)]
        kept = tuple(f for i, f in enumerate(product.factors) if i not in used)
        gone = {*self.chosen, *self.selections}
        left = {k: v for k, v in product.sizes.items() if k not in gone}
        return replace(product, factors=kept, sizes=left).times((whole, (*stack, *rows)))
