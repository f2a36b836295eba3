"""Products of eigenvectors, weighted by a function of the eigenvalues and summed over them, as an
operation on the symmetric matrix; likewise of singular vectors, and of V and V⁻¹ of a general
matrix.

The differential of Σ_i h(λ_i) V_ai V_bi is a sum of the same kind, which exists where eigenvalues
are repeated: Σ_ij h[λ_i, λ_j] V_ai (V_ci dA_cd V_dj) V_bj (Daleckii and Krein 1965). For a general
matrix with W = V⁻¹, that of Σ_i h(λ_i) V_ai W_ib is Σ_ij h[λ_i, λ_j] V_ai (W_ic dA_cd V_dj) W_jb.
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
"""The outputs of `SVD` that are singular vectors."""

INVERTED = -1
"""Number of the output V⁻¹ of `EIG`, whose rows are the left eigenvectors."""

VALUES_OUTPUT = {EIGH: 0, SVD: 1, EIG: 0}

VECTOR_OUTPUTS = {EIGH: (1,), SVD: (LEFT, RIGHT), EIG: (1,)}

DECOMPOSITIONS = {EIGVALSH: EIGH, SVDVALS: SVD, EIGVALS: EIG}
"""Decompositions with vectors, by the operation that computes their values alone."""

NEW = sympy.Dummy("new", real=True)
"""The symbol in a weight for the eigenvalue at a further index."""


def number(position: int) -> sympy.Symbol:
    """Return the symbol in a weight for the number s at `position` (see `PRODUCT`)."""
    return sympy.Symbol(f"number{position}", real=True)


VectorFactor = tuple[int, Any, int]
"""Vectors in a product: an output, the label of its rows, and the index of eigenvalues that its
columns have; for INVERTED, the label of its columns, and the index that its rows have."""


def vectors_of(node: Node) -> tuple[Apply, int] | None:
    """Return the decomposition whose vectors a node is, and their output; None for others."""
    if not isinstance(node, Apply):
        return None
    if node.output in VECTOR_OUTPUTS.get(node.operation, ()):
        return node, node.output
    if node.operation is INVERSE:
        ((inner, labels),) = node.arguments
        is_unbroadcast = labels == tuple(range(len(node.stack)))
        if is_unbroadcast and isinstance(inner, Apply) and inner.operation is EIG and inner.output:
            return inner, INVERTED
    return None


def row_and_index(output: int, labels: Sequence[Any]) -> tuple[Any, Any]:
    """Tell the label of the rows from the index of the eigenvalues of labelled vectors; also the
    reverse."""
    first, second = labels[-2:]
    return (second, first) if output == INVERTED else (first, second)


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

Parameters: the weight w, an expression of a slot for each index, of `Constant` and of `number`; the
decomposition EIGH, SVD or EIG; the outputs of the vectors, two for each index; the number of
vectors c. Not registered: it occurs in expressions only while they are differentiated.""",
)


def unpacked(node: Apply) -> Node:
    """Write an application of `PRODUCT` as an `Einsum`."""
    point, values = core_point(node)
    product = _SpectralProduct(point)
    return broadcast_over_stack(product.term(product.weight, product.vectors), values, node)


def _differential(at: Point) -> tuple[Array, ...]:
    """Sum the terms for the eigenvalues and vectors at each index, and for each number s."""
    product = _SpectralProduct(at)
    matrix_tangent, *tangents = (tangent.node for tangent in at.tangents)
    terms: list[Node] = []
    for position in range(product.count) if not is_zero(matrix_tangent) else ():
        rule = product.singular_terms if product.operation is SVD else product.eigenvalue_terms
        terms.extend(rule(position, matrix_tangent))
    for position, tangent in enumerate(tangents[len(product.constants) :]):
        if not is_zero(tangent):
            derivative = scalar_functions.derivative(product.weight, number(position))
            terms.append(product.term(derivative, product.vectors, [(tangent, ())]))
    return (Array(Sum(tuple(terms), at.result.node.shape)),)


class _SpectralProduct:
    """An application of `PRODUCT` at a point, and the terms of its differential.

    `count`: the number of indices of eigenvalues, which are 0, 1, ...; `rows`: the labels of the
    result.
    """

    def __init__(self, at: Point) -> None:
        weight, operation, outputs, constants = at.parameters
        assert isinstance(operation, Operation) and isinstance(outputs, tuple)
        assert isinstance(constants, int)
        self.weight = sympy.sympify(weight)
        self.operation = operation
        self.matrix, *arrays = at.arguments
        self.constants, self.numbers = arrays[:constants], arrays[constants:]
        self.count = len(outputs) // 2
        self.rows = [f"r{i}" for i in range(len(outputs))]
        self.vectors: list[VectorFactor] = [
            (output, row, i // 2)
            for i, (output, row) in enumerate(zip(outputs, self.rows, strict=True))
        ]

    def term(
        self, weight: sympy.Expr, vectors: Sequence[VectorFactor], factors: Sequence[Any] = ()
    ) -> Node:
        """Multiply vectors, labelled factors, and a weight of the values at the indices of the
        vectors; NEW is the value at the index `count`."""
        indices = range(1 + max((index for _, _, index in vectors), default=-1))
        values = apply(self.operation, self.matrix, output=VALUES_OUTPUT[self.operation])
        sizes = dict.fromkeys(indices, values.node.shape[0])
        value_symbols = [*map(slot, range(self.count)), NEW]
        arrays: dict[sympy.Expr, Array] = {}
        for i in indices:
            entries = {value_symbols[i]: values}
            entries |= {Constant(k, i): vector for k, vector in enumerate(self.constants)}
            for symbol, vector in entries.items():
                arrays[symbol] = Array(einsum([(vector.node, [i])], indices, sizes=sizes))
        arrays |= {number(i): array for i, array in enumerate(self.numbers)}
        arrays[LEVEL] = apply(ROUNDING_LEVEL, values)
        symbols = [symbol for symbol in arrays if symbol in weight.free_symbols]
        expression = weight.xreplace({symbol: slot(i) for i, symbol in enumerate(symbols)})
        weights = elementwise(expression, *(arrays[symbol] for symbol in symbols))
        weights = broadcast_to(weights, tuple(sizes.values()))
        vector_factors = [
            (_vectors(self.operation, self.matrix, output), row_and_index(output, (row, index)))
            for output, row, index in vectors
        ]
        return einsum([*vector_factors, *factors, (weights.node, indices)], self.rows, sizes=sizes)

    def _split(self, position: int) -> tuple[list[VectorFactor], VectorFactor, VectorFactor]:
        """Split the vectors into those at all other indices and the two at an index."""
        pair = self.vectors[2 * position], self.vectors[2 * position + 1]
        return [factor for factor in self.vectors if factor not in pair], *pair

    def _moved_constants(self, position: int) -> list[tuple[Constant, Constant]]:
        """Pair the constants at an index with those at the index `count`."""
        numbers = range(len(self.constants))
        return [(Constant(k, position), Constant(k, self.count)) for k in numbers]

    def eigenvalue_terms(self, position: int, tangent: Node) -> Iterator[Node]:
        """Differentiate by the matrix at one index: w[λ_i, λ_j] V_ai (V_ci dA_cd V_dj) V_bj, with
        V⁻¹ as second and fourth factor for EIG; see `pair_weight`."""
        unchanged, *pair = self._split(position)
        if pair[0][0] == INVERTED:
            pair.reverse()
        (output, row, index), (inverse, column, _) = pair
        new = self.count
        inner = [(inverse, "c", index), (output, "d", new)]
        vectors = [*unchanged, (output, row, index), *inner, (inverse, column, new)]
        weight = pair_weight(self.weight, slot(position), NEW, self._moved_constants(position))
        yield self.term(weight, vectors, [(tangent, "cd")])

    def singular_terms(self, position: int, tangent: Node) -> Iterator[Node]:
        """Differentiate by the matrix at one index of singular values.

        With B = Uᵀ dA V the differential of X diag(w) Yᵀ, where X and Y are U or V, is
        X (S ∘ sym B + C ∘ skew B) Yᵀ with S_ij = w[σ_i, σ_j] and
        C_ij = (±w(σ_j) ∓ w(σ_i)) / (σ_i + σ_j), a plus for U, a minus for V. If U is not square,
        (I - U Uᵀ) dA V diag(w/σ) Yᵀ is added, of which the part U Uᵀ is subtracted from the
        weights; likewise for V.
        """
        unchanged, (first, row, index), (second, column, _) = self._split(position)
        new, value = self.count, slot(position)
        sign = {LEFT: 1, RIGHT: -1}
        incomplete = [
            (int(output == (RIGHT if is_first else LEFT)), is_first)
            for output, is_first in ((first, True), (second, False))
            if not self._is_complete(output)
        ]
        weights = singular_pair_weights(
            *(self.weight, value, NEW, self._moved_constants(position)),
            *((sign[first], sign[second]), incomplete),
        )
        axis = {LEFT: "c", RIGHT: "d"}
        for (left, right), weight in zip(((LEFT, RIGHT), (RIGHT, LEFT)), weights, strict=True):
            inner = [(left, axis[left], index), (right, axis[right], new)]
            vectors = [*unchanged, (first, row, index), *inner, (second, column, new)]
            yield self.term(weight, vectors, [(tangent, "cd")])
        quotient = over(self.weight, value)
        ends = ((first, row), (second, column))
        for (output, label), unchanged_end in (ends, ends[::-1]):
            if not self._is_complete(output):
                opposite = RIGHT if output == LEFT else LEFT
                vectors = [*unchanged, (*unchanged_end, index), (opposite, axis[opposite], index)]
                labels = [label if name == axis[output] else name for name in "cd"]
                yield self.term(quotient, vectors, [(tangent, labels)])

    def _is_complete(self, output: int) -> bool:
        """Tell whether the columns of U, or V, are known to span the whole space."""
        rows, columns = self.matrix.node.shape
        gap = columns - rows if output == LEFT else rows - columns
        return bool(gap.is_nonnegative)
