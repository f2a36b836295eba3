"""Sums over eigenvalues of functions of these times eigenvectors, two at each index, as an
operation of the symmetric matrix; over singular values and their vectors alike, and over the
eigenvalues of a general matrix with V and V⁻¹.

Σ_i h(λ_i) V_ai V_bi has derivatives where eigenvalues are repeated, though V has none, and they are
sums of the same kind: Σ_ij h[λ_i, λ_j] V_ai (V_ci dA_cd V_dj) V_bj (Daleckii and Krein 1965). Of a
general matrix W = V⁻¹ stands at every second place: Σ_i h(λ_i) V_ai W_ib has the derivative
Σ_ij h[λ_i, λ_j] V_ai (W_ic dA_cd V_dj) W_jb.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import sympy

from derivatrix.compiler.differentiate.jvp import broadcast_over_stack, core_point
from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.arrays import Array, apply, broadcast_to, elementwise
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.nodes import Apply, Node, Sum, einsum, is_zero, slot
from derivatrix.compiler.ir.operation import Operation, Parameters, Point
from derivatrix.compiler.ir.spectral_weights import (
    LEVEL,
    Constant,
    over,
    pair_weight,
    singular_pair_weights,
)
from derivatrix.compiler.operations.eigen import EIG, EIGH, EIGVALS, EIGVALSH
from derivatrix.compiler.operations.gaps import ROUNDING_LEVEL
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.singular import SVD, SVDVALS

LEFT, RIGHT = 0, 2
"""The outputs of `SVD` that are vectors."""

INVERTED = -1
"""What stands for an output where the vectors are those of `EIG` inverted: the rows of V⁻¹."""

VALUES = {EIGH: 0, SVD: 1, EIG: 0}
"""Which output the values are."""

VECTORS = {EIGH: (1,), SVD: (LEFT, RIGHT), EIG: (1,)}
"""Which outputs the vectors are."""

VALUES_ALONE = {EIGVALSH: EIGH, SVDVALS: SVD, EIGVALS: EIG}

NEW = sympy.Dummy("new", real=True)


def number(position: int) -> sympy.Symbol:
    """The symbol in a weight for a number that is none of the values."""
    return sympy.Symbol(f"number{position}", real=True)


VectorFactor = tuple[int, Any, int]
"""Vectors in a product: an output, the label of its rows, and the index of its column; of INVERTED
vectors the label of the columns, and the index of the row."""


def vectors_of(node: Node) -> tuple[Apply, int] | None:
    """The decomposition that a node has the vectors of, and which of its outputs they are."""
    if not isinstance(node, Apply):
        return None
    if node.output in VECTORS.get(node.operation, ()):
        return node, node.output
    if node.operation is INVERSE:
        ((inner, labels),) = node.arguments
        whole = labels == tuple(range(len(node.stack)))
        if whole and isinstance(inner, Apply) and inner.operation is EIG and inner.output == 1:
            return inner, INVERTED
    return None


def row_and_index(output: int, labels: Sequence[Any]) -> tuple[Any, Any]:
    """The labels of the rows and of the eigenvalues, of vectors with the given labels."""
    row, index = labels[-2:]
    return (index, row) if output == INVERTED else (row, index)


def _vectors(operation: Operation, matrix: Array, output: int) -> Node:
    if output == INVERTED:
        return apply(INVERSE, apply(EIG, matrix, output=1)).node
    return apply(operation, matrix, output=output).node


def _shapes(cores: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    _, operation, outputs, _ = parameters
    assert isinstance(operation, Operation) and isinstance(outputs, tuple)
    shapes = operation.shapes(cores[:1], ())
    return (tuple(shapes[1 if output == INVERTED else output][0] for output in outputs),)


def _value(arguments: Sequence[np.ndarray], parameters: Parameters) -> tuple[np.ndarray, ...]:
    raise NotImplementedError("written out before it is evaluated")


PRODUCT = Operation(
    name="eigenproduct",
    ranks=(2,),
    shapes=_shapes,
    value=_value,
    differential=lambda at: _differential(at),
    numpy=lambda arguments, parameters, output: "",
    unicode="",
    latex="",
    description="""Σ w(λ_i, c_i, λ_j, c_j, ..., s) V_ai V_bi V_cj V_dj ... of a matrix, of vectors c
that do not vary, and of numbers s.

Parameters: the weight w, an expression of a slot for each index, and of `Constant` and `number`;
EIGH, SVD or EIG; which of its outputs the vectors are, two for each index; how many vectors c there
are. Not registered: it stands in expressions only while they are differentiated.""",
)


def unpacked(node: Apply) -> Node:
    """Such a product as an `Einsum`."""
    point, actual = core_point(node, {})
    product = _SpectralProduct(point)
    return broadcast_over_stack(product.term(product.weight, product.vectors), actual, node)


def _differential(at: Point) -> tuple[Array, ...]:
    product = _SpectralProduct(at)
    change, *changes = (tangent.node for tangent in at.tangents)
    terms: list[Node] = []
    for position in range(product.count) if not is_zero(change) else ():
        rule = product.between_two if product.operation is SVD else product.between
        terms.extend(rule(position, change))
    for position, tangent in enumerate(changes[len(product.constants) :]):
        if not is_zero(tangent):
            slope = scalar_functions.derivative(product.weight, number(position))
            terms.append(product.term(slope, product.vectors, [(tangent, ())]))
    return (Array(Sum(tuple(terms), at.result.node.shape)),)


class _SpectralProduct:
    """Such a product at a point, and terms of its differential."""

    def __init__(self, at: Point) -> None:
        weight, operation, outputs, constants = at.parameters
        assert isinstance(operation, Operation) and isinstance(outputs, tuple)
        assert isinstance(constants, int)
        self.weight = sympy.sympify(weight)
        self.operation = operation
        self.matrix, *others = at.arguments
        self.constants, self.numbers = others[:constants], others[constants:]
        self.count = len(outputs) // 2
        self.rows = [f"r{i}" for i in range(len(outputs))]
        self.vectors: list[VectorFactor] = [
            (output, row, i // 2)
            for i, (output, row) in enumerate(zip(outputs, self.rows, strict=True))
        ]

    def term(
        self, weight: sympy.Expr, vectors: Sequence[VectorFactor], others: Sequence[Any] = ()
    ) -> Node:
        """A product of vectors, labelled factors, and a weight of the values at the indices of
        the vectors; NEW is the value at the index that comes after those there are."""
        indices = range(1 + max((index for _, _, index in vectors), default=-1))
        values = apply(self.operation, self.matrix, output=VALUES[self.operation])
        sizes = dict.fromkeys(indices, values.node.shape[0])
        names = [*map(slot, range(self.count)), NEW]
        known: dict[sympy.Expr, Array] = {}
        for i in indices:
            entries = {names[i]: values}
            entries |= {Constant(k, i): vector for k, vector in enumerate(self.constants)}
            for name, vector in entries.items():
                known[name] = Array(einsum([(vector.node, [i])], indices, sizes=sizes))
        known |= {number(i): array for i, array in enumerate(self.numbers)}
        known[LEVEL] = apply(ROUNDING_LEVEL, values)
        used = [name for name in known if name in weight.free_symbols]
        expression = weight.xreplace({name: slot(place) for place, name in enumerate(used)})
        factor = elementwise(expression, *(known[name] for name in used)).node
        factor = broadcast_to(Array(factor), tuple(sizes.values())).node
        factors = [
            (_vectors(self.operation, self.matrix, output), row_and_index(output, (row, index)))
            for output, row, index in vectors
        ]
        return einsum([*factors, *others, (factor, indices)], self.rows, sizes=sizes)

    def _pair(self, position: int) -> tuple[list[VectorFactor], VectorFactor, VectorFactor]:
        """The vectors at an index, and before them all others."""
        pair = self.vectors[2 * position], self.vectors[2 * position + 1]
        return [factor for factor in self.vectors if factor not in pair], *pair

    def _replaced(self, position: int) -> list[tuple[Constant, Constant]]:
        """The constants at an index, and those at the index that comes after those there are."""
        numbers = range(len(self.constants))
        return [(Constant(k, position), Constant(k, self.count)) for k in numbers]

    def between(self, position: int, change: Node) -> Iterator[Node]:
        """w[λ_i, λ_j] V_ai (V_ci dA_cd V_dj) V_bj, with V⁻¹ for the second and fourth of EIG; see
        `pair_weight`."""
        others, *pair = self._pair(position)
        if pair[0][0] == INVERTED:
            pair.reverse()
        (output, row, index), (inverse, column, _) = pair
        new = self.count
        inner = [(inverse, "c", index), (output, "d", new)]
        vectors = [*others, (output, row, index), *inner, (inverse, column, new)]
        weight = pair_weight(self.weight, slot(position), NEW, self._replaced(position))
        yield self.term(weight, vectors, [(change, "cd")])

    def between_two(self, position: int, change: Node) -> Iterator[Node]:
        """The same for singular values, from the differentials of U and V: with B = Uᵀ dA V the
        vectors X diag(w) Yᵀ become X (S ∘ sym B + C ∘ skew B) Yᵀ with S_ij = w[σ_i, σ_j] and
        C_ij = (±w(σ_j) ∓ w(σ_i)) / (σ_i + σ_j), a plus for U, a minus for V. Of a U that is not
        square there is (I - U Uᵀ) dA V diag(w/σ) Yᵀ besides, whose part in U is subtracted from the
        weights; so it is of V."""
        others, (first, row, index), (second, column, _) = self._pair(position)
        new = self.count
        sign = {LEFT: 1, RIGHT: -1}
        replaced, signs = self._replaced(position), (sign[first], sign[second])
        open_ends = [
            (position_of[end], is_first)
            for end, is_first, position_of in (
                (first, True, {LEFT: 0, RIGHT: 1}),
                (second, False, {LEFT: 1, RIGHT: 0}),
            )
            if not self._complete(end)
        ]
        value = slot(position)
        weights = singular_pair_weights(self.weight, value, NEW, replaced, signs, open_ends)
        for (left, right), weight in zip(((LEFT, RIGHT), (RIGHT, LEFT)), weights, strict=True):
            inner = [(left, "cd"[left != LEFT], index), (right, "cd"[right != LEFT], new)]
            vectors = [*others, (first, row, index), *inner, (second, column, new)]
            yield self.term(weight, vectors, [(change, "cd")])
        quotient = over(self.weight, value)
        for here, there in (((first, row), (second, column)), ((second, column), (first, row))):
            if self._complete(here[0]):
                continue
            across = RIGHT if here[0] == LEFT else LEFT
            own, other = "cd" if across == RIGHT else "dc"
            vectors = [*others, (*there, index), (across, other, index)]
            outside = [here[1] if label == own else label for label in "cd"]
            yield self.term(quotient, vectors, [(change, outside)])

    def _complete(self, output: int) -> bool:
        """Whether the columns of U, or V, are known to span the whole space."""
        rows, columns = self.matrix.node.shape
        gap = columns - rows if output == LEFT else rows - columns
        return bool(gap.is_nonnegative)
