"""Diagonals, sums of entries, traces and norms."""

from __future__ import annotations

import sympy

from derivatrix.compiler.formulas.algebra import (
    chains,
    coefficients,
    entrywise,
    order,
    parts,
    transposition,
)
from derivatrix.compiler.formulas.divisors import divisor
from derivatrix.compiler.formulas.tree import (
    Diag,
    Diagonal,
    Hadamard,
    Identity,
    Matmul,
    Norm,
    Number,
    Ones,
    Padded,
    Power,
    Raise,
    Scale,
    Spread,
    Total,
    Trace,
    Transpose,
    Tree,
    Triangle,
    is_row,
)

ONE = sympy.S.One


def diag(vector: Tree) -> Tree:
    """The diagonal matrix of a vector."""
    if isinstance(vector, Scale) and vector.body is not None:
        return coefficients.scale(vector.coefficient, vector.scalars, diag(vector.body))
    if isinstance(vector, Spread):
        return coefficients.scale(ONE, [vector.body], Identity(vector.shape[0]))
    return Identity(vector.size) if isinstance(vector, Ones) else Diag(vector)


def diagonal(matrix: Tree) -> Tree:
    """The diagonal of a square matrix."""
    if isinstance(matrix, Scale) and matrix.body is not None:
        return coefficients.scale(matrix.coefficient, matrix.scalars, diagonal(matrix.body))
    if isinstance(matrix, Spread):
        return entrywise.spread(matrix.body, (0,) if matrix.along else (), matrix.shape[:1])
    if isinstance(matrix, Transpose):
        return diagonal(matrix.body)
    return matrix.body if isinstance(matrix, Diag) else Diagonal(matrix)


def triangle(matrix: Tree, lower: bool, offset: int) -> Tree:
    """The entries of one triangle, zeros elsewhere."""
    if isinstance(matrix, Scale) and matrix.body is not None:
        return coefficients.scale(
            matrix.coefficient, matrix.scalars, triangle(matrix.body, lower, offset)
        )
    return Triangle(matrix, lower, offset)


def total(tree: Tree) -> Tree:
    """The sum of all entries."""
    if isinstance(tree, Scale) and tree.body is not None:
        return coefficients.scale(tree.coefficient, tree.scalars, total(tree.body))
    if isinstance(tree, (Transpose, Diag)):
        return total(tree.body)
    if isinstance(tree, Raise) and tree.exponent == Number(2 * ONE) and tree.rank <= 2:
        if tree.rank == 1:
            return chains.matmul(Transpose(tree.body), tree.body)
        return Raise(0, norm(tree.body), tree.exponent)
    if isinstance(tree, Hadamard) and len(tree.factors) == 2 and tree.rank <= 2:
        first, second = tree.factors
        if divisor(second) is None:
            return contracted(first, second)
    return Total(tree)


def contracted(first: Tree, second: Tree) -> Tree:
    """The sum of the products of the entries of two vectors or matrices."""
    for one, other in ((first, second), (second, first)):
        if isinstance(one, Padded):
            return contracted(one.body, parts.part(other, one.ranges))
    if first.rank == 1:
        return chains.matmul(Transpose(first), second)
    return trace(chains.matmul(transposition.transpose(first), second))


def norm(tree: Tree) -> Tree:
    """The Euclidean or Frobenius norm."""
    turned = transposition.transpose(tree) if tree.rank == 2 else tree
    return Norm(turned if order.transposes(turned) < order.transposes(tree) else tree)


def trace(matrix: Tree) -> Tree:
    """The trace, with the factors of a product turned so that it reads best."""
    match matrix:
        case Scale() if matrix.body is not None:
            return coefficients.scale(matrix.coefficient, matrix.scalars, trace(matrix.body))
        case Transpose():
            return trace(matrix.body)
        case Diag():
            return total(matrix.body)
        case Spread():
            return total(diagonal(matrix))
        case Matmul():
            return _trace_of_product(matrix)
        case Power(body=Transpose() as body):
            return Trace(Power(body.body, matrix.exponent))
    return Trace(matrix)


def _trace_of_product(matrix: Matmul) -> Tree:
    for position, factor in enumerate(matrix.factors):
        if is_row(factor):
            return chains.matmul(*matrix.factors[position:], *matrix.factors[:position])
    candidates = []
    for factors in (list(matrix.factors), transposition.flipped(matrix.factors)):
        for turn in range(len(factors)):
            candidates.append(chains.matmul(*factors[turn:], *factors[:turn]))
    best = min(candidates, key=order.trace_order)
    if (
        isinstance(best, Matmul)
        and len(best.factors) == 2
        and best.factors[0] == transposition.transpose(best.factors[1])
    ):
        return Raise(0, norm(best.factors[1]), Number(2 * ONE))
    return Trace(best) if isinstance(best, (Matmul, Power)) else trace(best)
