"""Functions of symmetric matrices that are written with eigenvalues and eigenvectors.

V diag(h(λ)) Vᵀ has derivatives where eigenvalues are repeated, though V has none: with B = Vᵀ dA V
they are V (L ∘ B) Vᵀ, where L holds the divided differences of h (Daleckii and Krein 1965). The
same holds for every index of an eigenvalue that stands at two eigenvectors, as both indices of L
do here, so derivatives of every order are made of divided differences. These products are
gathered before an expression is differentiated, and written out afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import sympy

from derivatrix.compiler import scalars
from derivatrix.compiler.arrays import Array, apply, elementwise
from derivatrix.compiler.differences import difference
from derivatrix.compiler.differentiate import core_point, place
from derivatrix.compiler.dimensions import Shape
from derivatrix.compiler.ir import (
    Apply,
    Einsum,
    Factor,
    Labels,
    Map,
    Node,
    Sum,
    einsum,
    full,
    is_zero,
    slot,
    topological,
)
from derivatrix.compiler.operations.eigen import EIGH, EIGVALSH
from derivatrix.compiler.operations.registry import Operation, Parameters, Point
from derivatrix.compiler.operations.softmax import LOGSUMEXP, SOFTMAX
from derivatrix.compiler.simplify import rebuilt
from derivatrix.compiler.simplify.product import Product
from derivatrix.runtime.errors import UnsupportedError

TERMS = 64
"""Sums in a product are multiplied out up to so many terms, where that frees eigenvectors."""

NEW = sympy.Dummy("new", real=True)


def gathered(roots: Sequence[Node]) -> list[Node]:
    """The nodes with the products of eigenvectors as operations."""
    spectra: list[_Spectrum] = []
    new: dict[Node, Node] = {}
    for node in topological(roots):
        changed = rebuilt(node, new)
        if isinstance(changed, Apply) and changed.operation is EIGH and changed.output == 1:
            spectra.append(_Spectrum(changed))
        if isinstance(changed, Einsum):
            for spectrum in spectra:
                changed = spectrum.gathered(changed)
        new[node] = changed
    return [new[root] for root in roots]


def spread(roots: Sequence[Node]) -> list[Node]:
    """The nodes with those operations written out again."""
    new: dict[Node, Node] = {}
    for node in topological(roots):
        changed = rebuilt(node, new)
        if isinstance(changed, Apply) and changed.operation.name == NAME:
            changed = _spread(changed)
        new[node] = _multiplied_out(changed)
    return [new[root] for root in roots]


def _multiplied_out(node: Node) -> Node:
    """A product with the differential of one of those operations as a sum of products, which need
    not have as many axes on the way."""
    for position, (factor, labels) in enumerate(node.factors if isinstance(node, Einsum) else ()):
        if isinstance(factor, Sum) and any(map(_holds_vectors, factor.terms)):
            assert isinstance(node, Einsum)
            before, after = node.factors[:position], node.factors[position + 1 :]
            each = [(*before, (term, labels), *after) for term in factor.terms]
            terms = [Einsum(node.coefficient, one, node.sizes, node.ndim) for one in each]
            return Sum(tuple(map(_multiplied_out, terms)), node.shape)
    return node


def _holds_vectors(node: Node) -> bool:
    factors = node.factors if isinstance(node, Einsum) else ()
    kinds = [factor.operation for factor, _ in factors if isinstance(factor, Apply)]
    return node.ndim > 2 and EIGH in kinds


class _Spectrum:
    """The eigenvalues and eigenvectors of one matrix, or of stacked ones."""

    def __init__(self, vectors: Apply) -> None:
        self.vectors = vectors
        self._axes: dict[Node, frozenset[int]] = {}

    def gathered(self, node: Node) -> Node:
        """`node`, a product or a sum of them, with its products of eigenvectors as one operation;
        as it is where that is not possible."""
        if isinstance(node, Sum):
            return Sum(tuple(map(self.gathered, node.terms)), node.shape)
        if not isinstance(node, Einsum) or not self._labels(node.factors):
            return node
        terms = []
        for product in self._opened(Product.of(node)):
            found = self._gather(product)
            if found is None:
                return node
            terms.append(einsum(found.factors, found.output, found.coefficient, found.sizes))
        return terms[0] if len(terms) == 1 else Sum(tuple(terms), node.shape)

    def _is_values(self, node: Node) -> bool:
        if not isinstance(node, Apply):
            return False
        values = node.operation is EIGVALSH or (node.operation is EIGH and node.output == 0)
        own = (node.arguments, node.stack) == (self.vectors.arguments, self.vectors.stack)
        return values and own

    def _axes_of(self, node: Node) -> frozenset[int]:
        """The axes of a node that count eigenvalues."""
        if node not in self._axes:
            self._axes[node] = frozenset(self._find_axes(node))
        return self._axes[node]

    def _find_axes(self, node: Node) -> set[int]:
        if node is self.vectors or self._is_values(node):
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
        """The labels that count eigenvalues."""
        return {own[axis] for node, own in factors for axis in self._axes_of(node)}

    def _opened(self, product: Product) -> list[Product]:
        """Products that add up to this one, where no sum or product that shares a summed index of
        eigenvalues with others has an eigenvector or a sum in it; up to so many."""
        pending, done = [product], list[Product]()
        while pending:
            current = pending.pop()
            if len(pending) + len(done) > TERMS:
                return [product]
            position = self._closed(current)
            if position is None:
                done.append(current)
                continue
            node, labels = current.factors[position]
            if isinstance(node, Einsum):
                pending.append(current.inlined(position))
                continue
            assert isinstance(node, Sum)
            before, after = current.factors[:position], current.factors[position + 1 :]
            for term in node.terms:
                pending.append(replace(current, factors=(*before, (term, labels), *after)))
        return done

    def _closed(self, product: Product) -> int | None:
        """The position of a factor to open."""
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
        if self.vectors in node.children or (isinstance(node, Einsum) and node.contracted):
            return True
        return any(map(self._opens, node.children))

    def _gather(self, product: Product) -> Product | None:
        """A product with its eigenvectors, all that have two at an index, as one operation."""
        places: dict[int, list[int]] = {}
        outer: dict[int, Labels] = {}
        for position, (node, labels) in enumerate(product.factors):
            if node is self.vectors:
                places.setdefault(labels[-1], []).append(position)
                outer.setdefault(labels[-1], labels[:-2])
        chosen = [
            label
            for label, positions in places.items()
            if len(positions) == 2
            and label not in product.output
            and all(product.factors[position][1][:-2] == outer[label] for position in positions)
            and outer[label] == next(iter(outer.values()))
        ]
        while chosen:
            weight = _Weight(self, chosen, outer[chosen[0]])
            failed = weight.read(product)
            if failed is None:
                return weight.put_in(product, [places[label] for label in chosen])
            chosen = [label for label in chosen if label not in failed]
        return None


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
            vectors = node is self.spectrum.vectors
            here = set(labels[:-1] if vectors else labels) & set(self.chosen)
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
        if self.spectrum._is_values(node) and here:
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
                self._expression(factor, tuple(labels[label] for label in own))
                for factor, own in node.factors
            ]
            number = node.coefficient.is_number
            parts.append(node.coefficient if number else self._other(full(node.coefficient), ()))
            return None if None in parts else sympy.Mul(*parts)
        return None

    def _other(self, node: Node, labels: Labels) -> sympy.Symbol:
        if (node, labels) not in self.others:
            self.others.append((node, labels))
        return slot(len(self.chosen) + self.others.index((node, labels)))

    def put_in(self, product: Product, places: Sequence[Sequence[int]]) -> Product:
        """The product with the operation in the place of what was read."""
        stack = list(dict.fromkeys([*self.outer, *(own for _, o in self.others for own in o)]))
        vectors = self.spectrum.vectors
        (matrix, own) = vectors.arguments[0]
        arguments = [(matrix, tuple(stack.index(self.outer[label]) for label in own))]
        arguments += [(node, tuple(map(stack.index, labels))) for node, labels in self.others]
        sizes = tuple(product.sizes[label] for label in stack)
        operation = spectral(len(self.chosen), len(self.others))
        whole = Apply(operation, tuple(arguments), sizes, (self.expression,))
        rows = [product.factors[position][1][-2] for pair in places for position in pair]
        used = [*self.positions, *(position for pair in places for position in pair)]
        kept = tuple(f for i, f in enumerate(product.factors) if i not in used)
        left = {k: v for k, v in product.sizes.items() if k not in self.chosen}
        return replace(product, factors=kept, sizes=left).times((whole, (*stack, *rows)))


NAME = "spectral"


@cache
def spectral(count: int, others: int) -> Operation:
    """Σ w(λ_i, λ_j, ..., s) V_ai V_bi V_cj V_dj ... for `count` indices i, j, ... as an operation
    of a symmetric matrix and `others` numbers s, of shape (n,) * (2 count). The weight w, an
    expression of the slots, is its parameter."""

    def shapes(cores: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
        return (cores[0][:1] * (2 * count),)

    def value(arguments: Sequence[np.ndarray], parameters: Parameters) -> tuple[np.ndarray, ...]:
        raise NotImplementedError("spread before evaluation")

    def differential(at: Point) -> tuple[Array, ...]:
        return (Array(_moved(count, at)),)

    return Operation(
        name=NAME,
        ranks=(2,) + (0,) * others,
        shapes=shapes,
        value=value,
        differential=differential,
        numpy=lambda arguments, parameters, output: "",
        unicode="",
        latex="",
        description="Functions of symmetric matrices; written out before anything is planned.",
    )


def _moved(count: int, at: Point) -> Node:
    """The differential: each eigenvalue's two vectors with dA between, and the numbers'."""
    matrix, *numbers = at.arguments
    weight = sympy.sympify(at.parameters[0])
    terms: list[Node] = []
    if not is_zero(at.tangents[0].node):
        change = at.tangents[0].node
        for position in range(count):
            between = difference(weight, slot(position), NEW)
            slots = {slot(i): slot(i + 1) for i in range(count, count + len(numbers))}
            between = between.xreplace({**slots, NEW: slot(count)})
            terms.append(_written(between, count, matrix, numbers, (position, change)))
    for position, tangent in enumerate(at.tangents[1:], count):
        if not is_zero(tangent.node):
            slope = scalars.derivative(weight, slot(position))
            node = _written(slope, count, matrix, numbers)
            axes = range(2 * count)
            terms.append(einsum([(node, axes), (tangent.node, ())], axes))
    size = matrix.node.shape[-1]
    return Sum(tuple(terms), (size,) * (2 * count))


def _written(
    weight: sympy.Expr,
    count: int,
    matrix: Array,
    numbers: Sequence[Array],
    moved: tuple[int, Node] | None = None,
) -> Node:
    """The operation written out. moved: a place and the change of the matrix that stands between
    its two vectors, the second of which has an index of its own, the last."""
    values, vectors = apply(EIGH, matrix).node, apply(EIGH, matrix, output=1).node
    size = matrix.node.shape[-1]
    indices = [f"i{number}" for number in range(count + (moved is not None))]
    sizes = dict.fromkeys(indices, size)
    rows = [Array(einsum([(values, [own])], indices, sizes=sizes)) for own in indices]
    weights = elementwise(weight, *rows, *numbers).node
    factors: list[tuple[Node, Sequence[str]]] = []
    for position, index in enumerate(indices[:count]):
        left, right = f"a{position}", f"b{position}"
        factors.append((vectors, (left, index)))
        if moved is None or position != moved[0]:
            factors.append((vectors, (right, index)))
            continue
        factors += [(vectors, ("c", index)), (moved[1], "cd")]
        factors += [(vectors, ("d", indices[count])), (vectors, (right, indices[count]))]
    output = [f"{side}{number}" for number in range(count) for side in "ab"]
    return einsum([*factors, (weights, indices)], output, sizes=sizes)


def _spread(node: Apply) -> Node:
    point, actual = core_point(node, {})
    matrix, *numbers = point.arguments
    count = (node.ndim - len(node.stack)) // 2
    weight = sympy.sympify(node.parameters[0])
    return place(_written(weight, count, matrix, numbers), actual, node)
