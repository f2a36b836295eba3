"""The rules for inverses and pseudoinverses in products: A⁻¹ A = I, also where A is a product whose
factors stand beside the inverse; the identities of Penrose; residuals that are orthogonal to A."""

from __future__ import annotations

from collections.abc import Iterator

from derivatrix.compiler.ir.nodes import Apply, Delta, Einsum, Labels, Node, Sum
from derivatrix.compiler.ir.operation import Operation
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.pseudoinverse import PINV
from derivatrix.compiler.simplify.occurrences import places


def cancel_inverse(product: Product) -> Product | None:
    """A⁻¹ A = A A⁻¹ = I."""
    for one, inverse, labels in _applied(product, INVERSE):
        matrix = inverse.arguments[0][0]
        for positions, outer, hidden in places(product, matrix):
            if outer[:-2] != labels[:-2] or outer[-2] == outer[-1] or labels[-2] == labels[-1]:
                continue
            pair = _adjacent(labels[-2:], outer[-2:], "symmetric" in facts(matrix))
            if pair is None:
                continue
            *ends, inner = pair
            if product.private(inner, _mentions(product, inner, (one, *positions))):
                rest = product.without(one, *positions)
                for label in (inner, *hidden):
                    rest = rest.without(summed=label)
                if isinstance(matrix, Einsum) and product.factors[positions[0]][0] is not matrix:
                    rest = rest.scaled(1 / matrix.coefficient)
                return rest.times((Delta(matrix.shape[-1]), tuple(ends)))
    return None


def _applied(product: Product, operation: Operation) -> Iterator[tuple[int, Apply, Labels]]:
    """Positions, nodes and labels of an operation's results whose stacked axes are in order."""
    for position, (node, labels) in enumerate(product.factors):
        if not isinstance(node, Apply) or node.operation is not operation:
            continue
        if node.arguments[0][1] == tuple(range(len(node.stack))):
            yield position, node, labels


def _adjacent(left: Labels, right: Labels, symmetric: bool) -> tuple[int, int, int] | None:
    """The outer two labels and the inner one of a matrix product of two factors, if it is one."""
    (i, j), (k, m) = left, right
    if j == k:
        return (i, m, j)
    if m == i:
        return (k, j, i)
    if symmetric and j == m:
        return (i, k, j)
    if symmetric and i == k:
        return (j, m, i)
    return None


def brings_inverse_together(node: Einsum, product: Product) -> bool:
    """Whether splicing a factor into a product puts a matrix beside its inverse. Such a factor is
    spliced even where others share it: the product without the pair costs less."""
    position = next(i for i, (factor, _) in enumerate(product.factors) if factor is node)
    here = {factor for factor, _ in node.factors}
    there = {factor for factor, _ in product.factors}
    if not (_inverted(here) & _material(there) or _inverted(there) & _material(here)):
        return False
    return cancel_inverse(product.inlined(position)) is not None


def _inverted(nodes: set[Node]) -> set[Node]:
    """The matrices of which inverses are among `nodes`, and their factors."""
    inverses = (n for n in nodes if isinstance(n, Apply) and n.operation is INVERSE)
    return _material({inverse.arguments[0][0] for inverse in inverses})


def _material(nodes: set[Node]) -> set[Node]:
    """Nodes and the factors of those that are products."""
    inner = {factor for node in nodes if isinstance(node, Einsum) for factor, _ in node.factors}
    return nodes | inner


def absorb_projector(product: Product) -> Product | None:
    """A A⁺ A = A and A⁺ A A⁺ = A⁺, where A A⁺ and A⁺ A, which are symmetric, may stand transposed
    and on either side, as in Aᵀ A A⁺ = Aᵀ (Penrose, A generalized inverse for matrices, 1955)."""
    for one, inverse, labels in _applied(product, PINV):
        if inverse.parameters:
            continue
        matrix = inverse.arguments[0][0]
        matrices = [*places(product, matrix)]
        copies = [
            ((p,), own, ()) for p, (node, own) in enumerate(product.factors) if node is inverse
        ]
        for positions, outer, hidden in matrices:
            for ends, summed, axis in _projections(outer, labels):
                projector = (one, *positions)
                if not product.private(summed, _mentions(product, summed, projector)):
                    continue
                for other, own, _ in (*matrices, *copies):
                    label = own[axis if (other, own, _) in matrices else -3 - axis]
                    together = (*projector, *other)
                    repeated = len({*together}) < len(together) or own.count(label) > 1
                    if repeated or label not in ends:
                        continue
                    if product.private(label, _mentions(product, label, together)):
                        (end,) = {*ends} - {label}
                        rest = product.without(*projector)
                        for gone in (summed, *hidden):
                            rest = rest.without(summed=gone)
                        return rest.renamed(label, end)
    return None


def _projections(matrix: Labels, inverse: Labels) -> Iterator[tuple[Labels, int, int]]:
    """How a matrix and its pseudoinverse are multiplied, as A A⁺ or A⁺ A: the labels of the
    product's axes, the one summed over, and the axis of A that the product projects."""
    (rows, columns), (above, below) = matrix[-2:], inverse[-2:]
    if matrix[:-2] == inverse[:-2] and rows != columns and above != below:
        if columns == above and rows != below:
            yield (rows, below), columns, -2
        if rows == below and columns != above:
            yield (columns, above), rows, -1


def _mentions(product: Product, label: int, positions: tuple[int, ...]) -> int:
    """How often the factors at `positions` have a label."""
    return sum(product.factors[position][1].count(label) for position in positions)


def meets_its_inverse(total: Sum, product: Product) -> bool:
    """Whether a sum in a product has a term with an inverse of what the product's other factors are
    made of: multiplied out, such a residual, as A (A⁺ B) - B times Aᵀ, may vanish."""
    nodes = {factor for term in total.terms if isinstance(term, Einsum) for factor in term.children}
    inverted = {
        argument
        for node in nodes
        if isinstance(node, Apply) and node.operation in (INVERSE, PINV)
        for argument, _ in node.arguments
    }
    return bool(_material(inverted) & {factor for factor, _ in product.factors})
