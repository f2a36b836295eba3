"""Functions of matrices that are written with eigenvalues and eigenvectors.

V diag(h(λ)) Vᵀ is differentiable where eigenvalues are repeated, though V is not: with B = Vᵀ dA V
its differential is V (L ∘ B) Vᵀ, where L holds the divided differences of h (Daleckii and Krein
1965). The same holds for each index of an eigenvalue that two eigenvectors have, as both indices of
L do here; so derivatives of every order consist of divided differences. It also holds for singular
values, and for V diag(h(λ)) V⁻¹ of a general matrix. Where h depends on constants c as well, such
as the zeros and ones of a spectral projector, it holds where eigenvalues of equal c are repeated
(`ir.spectral_weights`).

Products of eigenvectors are therefore packed into single operations before an expression is
differentiated, and unpacked afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import sympy

from derivatrix.compiler.differentiate.spectral_products import (
    DECOMPOSITIONS,
    NEW,
    PRODUCT,
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
from derivatrix.compiler.operations.extrema import SHARES
from derivatrix.compiler.operations.gaps import ROUNDING_LEVEL
from derivatrix.compiler.operations.softmax import LOG_SOFTMAX, LOGSUMEXP, SOFTMAX
from derivatrix.compiler.simplify.products import eliminate_delta, merge_gathers, merge_slices
from derivatrix.runtime.errors import UnsupportedError

JUMPING = (*PIECEWISE_CONSTANT, step)
"""Functions that may be piecewise constant in a varying argument."""

MAX_TERMS = 64
"""Most terms of a product that is multiplied out so that eigenvectors become its factors."""


def pack(roots: Sequence[Node]) -> list[Node]:
    """Replace products of eigenvectors by operations of `spectral_products`."""
    spectra: list[_Spectrum] = []
    variation = _Variation()

    def change(node: Node) -> Node:
        vectors = vectors_of(node)
        if vectors and not any(spectrum.contains(vectors[0]) for spectrum in spectra):
            spectra.append(_Spectrum(vectors[0], variation))
        if isinstance(node, Einsum):
            for spectrum in spectra:
                node = spectrum.pack(node)
        return node

    return transformed(roots, change)


def unpack(roots: Sequence[Node]) -> list[Node]:
    """Write operations of `spectral_products` as products again."""

    def change(node: Node) -> Node:
        if isinstance(node, Apply) and node.operation is PRODUCT:
            node = unpacked(node)
        return _multiply_out(node)

    return transformed(roots, change)


def _multiply_out(node: Node) -> Node:
    """Multiply out a product with the differential of a packed operation: a sum of products, whose
    intermediate results need fewer axes."""
    if not isinstance(node, Einsum):
        return node
    for position, (factor, _) in enumerate(node.factors):
        if isinstance(factor, Sum) and any(map(_holds_vectors, factor.terms)):
            terms = (node.with_factor(position, term) for term in factor.terms)
            return Sum(tuple(map(_multiply_out, terms)), node.shape)
    return node


def _holds_vectors(node: Node) -> bool:
    factors = node.factors if isinstance(node, Einsum) else ()
    return node.ndim > 2 and any(vectors_of(factor) for factor, _ in factors)


class _Variation:
    """Tells which nodes vary with any input; signs, steps and shares of a maximum do not."""

    def __init__(self) -> None:
        self._is_varying: dict[Node, bool] = {}

    def varies(self, root: Node) -> bool:
        if root not in self._is_varying:
            for node in topological([root]):
                self._is_varying.setdefault(node, self._varies(node))
        return self._is_varying[root]

    def _varies(self, node: Node) -> bool:
        if isinstance(node, Leaf):
            return True
        if isinstance(node, Apply) and node.operation in (ROUNDING_LEVEL, SHARES):
            return False
        varying = [place for place, child in enumerate(node.children) if self._is_varying[child]]
        if isinstance(node, Map) and node.expression.has(*JUMPING):
            return any(derivative(node.expression, slot(place)) != 0 for place in varying)
        return bool(varying)


class _TooManyTermsError(Exception):
    """A product has too many terms when it is multiplied out."""


class _Spectrum:
    """The eigenvalues and eigenvectors, or singular values and vectors, of a matrix or of stacked
    matrices. `decomposition`: any output of it."""

    def __init__(self, decomposition: Apply, variation: _Variation) -> None:
        self.variation = variation
        self.operation = decomposition.operation
        self.arguments = decomposition.arguments
        self.stack = decomposition.stack
        self._axes: dict[Node, frozenset[int]] = {}

    def pack(self, node: Node) -> Node:
        """Replace the eigenvectors in `node`, a product or a sum of products, by one operation;
        return `node` itself where that is not possible."""
        if isinstance(node, Sum):
            return Sum(tuple(map(self.pack, node.terms)), node.shape)
        if not isinstance(node, Einsum) or not self._labels(node.factors):
            return node
        terms = []
        for product in self._expanded(Product.of(node)):
            packed = self._pack_product(_merge_selections(product))
            if packed is None:
                return node
            terms.append(packed.node)
        return terms[0] if len(terms) == 1 else Sum(tuple(terms), node.shape)

    def contains(self, node: Node) -> bool:
        """Tell whether a node is an output of this decomposition."""
        if not isinstance(node, Apply):
            return False
        operation = DECOMPOSITIONS.get(node.operation, node.operation)
        same_matrices = node.arguments == self.arguments and node.stack == self.stack
        return operation == self.operation and same_matrices

    def vectors(self, node: Node, labels: Sequence[int]) -> VectorFactor | None:
        """Read a labelled factor as vectors of this decomposition; None if it is none."""
        vectors = vectors_of(node)
        if not vectors or not self.contains(vectors[0]):
            return None
        return vectors[1], *row_and_index(vectors[1], labels)

    def is_values(self, node: Node) -> bool:
        """Tell whether a node is the eigenvalues or singular values."""
        return self.contains(node) and vectors_of(node) is None

    def _axes_of(self, node: Node) -> frozenset[int]:
        """Find the axes of a node that run over eigenvalues."""
        if node not in self._axes:
            self._axes[node] = frozenset(self._find_axes(node))
        return self._axes[node]

    def _find_axes(self, node: Node) -> set[int]:
        if vectors := self.vectors(node, range(node.ndim)):
            return {vectors[2]}
        if self.contains(node):
            return {node.ndim - 1}
        if isinstance(node, Einsum):
            return {label for label in self._labels(node.factors) if label < node.ndim}
        if isinstance(node, (Sum, Map)):
            return {axis for child in node.children for axis in self._axes_of(child)}
        if isinstance(node, Apply) and node.operation in (SOFTMAX, LOG_SOFTMAX):
            argument, labels = node.arguments[0]
            over_values = argument.ndim - 1 in self._axes_of(argument)
            is_unbroadcast = labels == tuple(range(len(node.stack)))
            return {node.ndim - 1} if over_values and is_unbroadcast else set()
        return set()

    def _labels(self, factors: Sequence[Factor]) -> set[int]:
        """Find the labels that run over eigenvalues."""
        return {labels[axis] for node, labels in factors for axis in self._axes_of(node)}

    def _expanded(self, product: Product) -> list[Product]:
        """Multiply a product out until no composite factor with a summed index of eigenvalues
        contains eigenvectors or contractions; return it alone if that takes too many terms."""

        def multiply_out(term: Product, other_count: int) -> list[Product] | None:
            if other_count > MAX_TERMS:
                raise _TooManyTermsError
            summed = self._labels(term.factors) - set(term.output)
            for position, (node, labels) in enumerate(term.factors):
                axes = self._axes_of(node)
                if any(labels[axis] in summed for axis in axes) and self._is_composite(node):
                    assert isinstance(node, Einsum | Sum)
                    return term.multiplied_out(position, node)
            return None

        try:
            return product.rewritten(multiply_out)
        except _TooManyTermsError:
            return [product]

    def _is_composite(self, node: Node) -> bool:
        """Tell whether a node is a product or sum that contains eigenvectors or a contraction."""
        if not isinstance(node, (Einsum, Sum)):
            return False
        if isinstance(node, Einsum) and node.contracted:
            return True
        return any(
            self.vectors(child, range(child.ndim)) or self._is_composite(child)
            for child in node.children
        )

    def _pack_product(self, product: Product) -> Product | None:
        """Pack the eigenvectors at all indices that a pair of them shares; None if no index can be
        packed."""
        positions_at: dict[int, list[int]] = {}
        stack_labels: dict[int, Labels] = {}
        for position, (node, labels) in enumerate(product.factors):
            if vectors := self.vectors(node, labels):
                positions_at.setdefault(vectors[2], []).append(position)
                stack_labels.setdefault(vectors[2], labels[:-2])
        indices = [
            label
            for label, positions in positions_at.items()
            if label not in product.output
            and self._are_a_pair([product.factors[position] for position in positions])
            and all(
                product.factors[position][1][:-2] == stack_labels[label] for position in positions
            )
            and stack_labels[label] == next(iter(stack_labels.values()))
        ]
        while indices:
            weight = _Weight(self, indices, stack_labels[indices[0]])
            unreadable = weight.read(product)
            if unreadable is None:
                return weight.pack(product, [positions_at[label] for label in indices])
            indices = [label for label in indices if label not in unreadable]
        return None

    def _are_a_pair(self, factors: Sequence[Factor]) -> bool:
        """Tell whether the vectors at one index are two, one of them of V⁻¹ for `EIG`."""
        inverted = [node for node, _ in factors if not self.contains(node)]
        return len(factors) == 2 and len(inverted) == (self.operation is EIG)


def _merge_selections(product: Product) -> Product:
    """Merge equal selections of one axis, and selections of the same single entry; write a
    diagonal matrix as a vector and a delta."""
    single_entries: dict[Node, int] = {}
    for position, (node, labels) in enumerate(product.factors):
        if isinstance(node, Slice) and node.shape[0] == 1 and labels[0] in product.summed:
            label = single_entries.setdefault(node, labels[0])
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
    """Return the vector v of a matrix that is written as diag(v) or a sum of such; else None."""
    if node.ndim != 2:
        return None
    if isinstance(node, Sum):
        vectors = [_diagonal(term) for term in node.terms]
        return None if None in vectors else Sum(tuple(filter(None, vectors)), node.shape[:1])
    factors = _factors(node, (0, 1))
    arrays = [
        (factor, tuple(0 if label == 1 else label for label in labels))
        for factor, labels in factors
        if not isinstance(factor, Delta)
    ]
    if len(arrays) != len(factors) - 1 or (Delta(node.shape[0]), (0, 1)) not in factors:
        return None
    coefficient = node.coefficient if isinstance(node, Einsum) else sympy.S.One
    return einsum(arrays, (0,), coefficient, {0: node.shape[0]})


def _factors(node: Node, labels: Labels) -> list[Factor]:
    """List the factors of a node with `labels`; contracted labels are negative."""
    if not isinstance(node, Einsum):
        return [(node, labels)]
    return list(relabelled(node.factors, (*labels, *range(-len(node.contracted), 0))))


class _Weight:
    """The weight of a packed product: all factors with an index of eigenvalues but the vectors, as
    one expression of the eigenvalues (a slot for each label in `indices`), of `constants`, which
    are vectors over eigenvalues that do not vary, and of `numbers`, which are arrays over the
    stacked axes `stack`.

    `positions`: the factors that the expression stands for. `selections`: by a summed label that
    runs over some of the eigenvalues, the factor that selects these."""

    def __init__(self, spectrum: _Spectrum, indices: Sequence[int], stack: Labels) -> None:
        self.spectrum = spectrum
        self.indices = indices
        self.stack = stack
        self.constants: list[Factor] = []
        self.numbers: list[Factor] = []
        self.positions: list[int] = []
        self.expression: sympy.Expr = sympy.S.One
        self.selections: dict[int, Factor] = {}

    def read(self, product: Product) -> set[int] | None:
        """Read the factors of a product. Return indices that cannot be packed, None if all can."""
        self.selections = self._selections(product)
        for position, (node, labels) in enumerate(product.factors):
            vectors = self.spectrum.vectors(node, labels)
            indices = self._indices_among({*labels[:-2], vectors[1]} if vectors else labels)
            if not indices:
                continue
            expression = None if vectors else self._expression(node, labels)
            if expression is None:
                return indices
            self.positions.append(position)
            self.expression *= expression
        if self.constants:
            self.expression = gathered(self.expression)
        for i, label in enumerate(self.indices):
            try:
                difference(self.expression, slot(i), NEW)
            except UnsupportedError:
                return {label}
        return None

    def _selections(self, product: Product) -> dict[int, Factor]:
        """Map each summed label that runs over some of the eigenvalues of an index to the factor
        that selects these."""
        selections: dict[int, list[Factor]] = {}
        for node, labels in product.factors:
            is_injective = isinstance(node, Slice) or (
                isinstance(node, Gather) and len(set(node.table)) == len(node.table)
            )
            if is_injective and labels[1] in self.indices and labels[0] in product.summed:
                selections.setdefault(labels[0], []).append((node, labels))
        return {label: factors[0] for label, factors in selections.items() if len(factors) == 1}

    def _indices_among(self, labels: Iterable[int]) -> set[int]:
        """Find the indices of eigenvalues among `labels` and behind their selections."""
        sources = (self.selections[i][1][1] if i in self.selections else i for i in labels)
        return {label for label in sources if label in self.indices}

    def _expression(self, node: Node, labels: Labels) -> sympy.Expr | None:
        """Read a factor as an expression of eigenvalues, constants and numbers; None if it is
        none."""
        factors = _factors(node, labels)
        indices = self._indices_among({*labels_of(factors)} & {*labels})
        if self.spectrum.is_values(node) and indices:
            is_unselected = labels[:-1] == self.stack and labels[-1] in self.indices
            return slot(self.indices.index(labels[-1])) if is_unselected else None
        if not indices and isinstance(node, Einsum) and self._indices_among(labels):
            axes = tuple(label for label in labels if label in labels_of(factors))
            return self._number(einsum(factors, axes, node.coefficient), axes)
        if not indices:
            return self._number(node, labels)
        if len(indices) == 1 and not self.spectrum.variation.varies(node):
            return self._constant(node, labels, *indices)
        if isinstance(node, Apply) and node.operation in (SOFTMAX, LOG_SOFTMAX):
            exponent = self._expression(node.arguments[0][0], labels)
            if exponent is None:
                return None
            logsumexp = Apply(LOGSUMEXP, node.arguments, node.stack)
            logarithm = exponent - self._number(logsumexp, labels[:-1])
            return logarithm if node.operation is LOG_SOFTMAX else sympy.exp(logarithm)
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
            parts = [self._expression(factor, inner_labels) for factor, inner_labels in inner]
            coefficient = node.coefficient
            parts.append(coefficient if coefficient.is_number else self._number(full(coefficient)))
            return None if None in parts else sympy.Mul(*parts)
        return None

    def _without_selections(self, factors: Sequence[Factor], outer: Labels) -> list[Factor] | None:
        """Drop the factors of a product, whose labels are `outer`, that repeat a selection of
        `selections`, so that the others run over all eigenvalues; None if the product contracts
        other labels."""
        sources = {label: label for label in labels_of(factors)}
        arrays: list[Factor] = []
        for node, labels in factors:
            if labels[:1] and labels[0] in outer and self._is_selection(labels[0], node):
                sources[labels[1]] = self.selections[labels[0]][1][1]
            else:
                arrays.append((node, labels))
        unselected = relabelled(arrays, sources)
        return list(unselected) if {*outer, *self.indices} >= {*labels_of(unselected)} else None

    def _is_selection(self, label: int, node: Node) -> bool:
        return label in self.selections and self.selections[label][0] is node

    def _constant(self, node: Node, labels: Labels, index: int) -> sympy.Expr | None:
        """Read a factor that does not vary and has one index of eigenvalues as a vector."""
        factors = _factors(node, labels)
        coefficient = node.coefficient if isinstance(node, Einsum) else sympy.S.One
        for label in labels:
            if label in self.selections and not self._is_selection(label, node):
                factors.append(self.selections[label])
        stack = tuple(label for label in self.stack if label in labels)
        if {*labels_of(factors)} & {*labels} - {*stack, index} - self.selections.keys():
            return None
        vector = einsum(factors, (*stack, index), coefficient), stack
        if vector not in self.constants:
            self.constants.append(vector)
        return Constant(self.constants.index(vector), self.indices.index(index))

    def _number(self, node: Node, labels: Labels = ()) -> sympy.Symbol:
        """Read a factor without an index of eigenvalues as a number for each of its labels."""
        if isinstance(node, Apply) and node.operation is ROUNDING_LEVEL and labels == self.stack:
            ((values, value_labels),) = node.arguments
            in_order = value_labels == tuple(range(len(value_labels)))
            if in_order and self.spectrum.is_values(values):
                return LEVEL
        if (node, labels) not in self.numbers:
            self.numbers.append((node, labels))
        return number(self.numbers.index((node, labels)))

    def pack(self, product: Product, pairs: Sequence[Sequence[int]]) -> Product:
        """Replace the factors that were read, and the vectors at the positions `pairs`, a pair for
        each index, by one operation."""
        vector_positions = [position for pair in pairs for position in pair]
        factors = [product.factors[position] for position in vector_positions]
        vectors = [vector for factor in factors if (vector := self.spectrum.vectors(*factor))]
        arrays = [*self.constants, *self.numbers]
        stack = list(dict.fromkeys([*self.stack, *labels_of(arrays)]))
        (matrix, matrix_labels) = self.spectrum.arguments[0]
        arguments = [(matrix, tuple(stack.index(self.stack[label]) for label in matrix_labels))]
        arguments += [(node, tuple(map(stack.index, labels))) for node, labels in arrays]
        outputs = tuple(output for output, _, _ in vectors)
        packed = Apply(
            PRODUCT,
            tuple(arguments),
            tuple(product.sizes[label] for label in stack),
            (self.expression, self.spectrum.operation, outputs, len(self.constants)),
        )
        replaced = {*self.positions, *vector_positions}
        summed = {*self.indices, *self.selections}
        remaining = replace(
            product,
            factors=tuple(f for i, f in enumerate(product.factors) if i not in replaced),
            sizes={label: size for label, size in product.sizes.items() if label not in summed},
        )
        return remaining.times((packed, (*stack, *(row for _, row, _ in vectors))))
