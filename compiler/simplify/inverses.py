"""Rules for inverses and pseudoinverses in products: A⁻¹ A = I, also if A is a product whose
factors stand beside the inverse; Penrose's identities; residuals that are orthogonal to A."""

from __future__ import annotations

from collections.abc import Iterator

from derivatrix.compiler.ir.nodes import Apply, Delta, Einsum, Labels, Node, Sum
from derivatrix.compiler.ir.operation import Operation
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.pseudoinverse import PINV
from derivatrix.compiler.simplify.occurrences import occurrences


def cancel_inverse(product: Product) -> Product | None:
    """A⁻¹ A = A A⁻¹ = I."""
    for position, inverse, labels in _applied(product, INVERSE):
        matrix = inverse.arguments[0][0]
        for positions, outer, hidden in occurrences(product, matrix):
            if outer[:-2] != labels[:-2] or outer[-2] == outer[-1] or labels[-2] == labels[-1]:
                continue
            pair = _adjacent(labels[-2:], outer[-2:], "symmetric" in facts(matrix))
            if pair is None:
                continue
            *ends, inner = pair
            if product.is_private(inner, _count(product, inner, (position, *positions))):
                cofactor = product.without(position, *positions)
                for label in (inner, *hidden):
                    cofactor = cofactor.without(summed=label)
                if isinstance(matrix, Einsum) and product.factors[positions[0]][0] is not matrix:
                    cofactor = cofactor.scaled(1 / matrix.coefficient)
                return cofactor.times((Delta(matrix.shape[-1]), tuple(ends)))
    return None


def _applied(product: Product, operation: Operation) -> Iterator[tuple[int, Apply, Labels]]:
    """Yield position, node and labels of the results of `operation` with stacked axes in order."""
    for position, (node, labels) in enumerate(product.factors):
        if not isinstance(node, Apply) or node.operation is not operation:
            continue
        if node.arguments[0][1] == tuple(range(len(node.stack))):
            yield position, node, labels


def _adjacent(a: Labels, b: Labels, symmetric: bool) -> tuple[int, int, int] | None:
    """Return the outer two labels and the inner one of a matrix product of two factors; None if
    they are not multiplied as matrices."""
    (i, j), (k, m) = a, b
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
    """Return whether splicing a factor into a product puts a matrix beside its inverse. Such a
    factor is spliced even if it is shared: the product without the pair costs less."""
    position = next(i for i, (factor, _) in enumerate(product.factors) if factor is node)
    inner = {factor for factor, _ in node.factors}
    outer = {factor for factor, _ in product.factors}
    if not (_inverted(inner) & _with_factors(outer) or _inverted(outer) & _with_factors(inner)):
        return False
    return cancel_inverse(product.inlined(position)) is not None


def _inverted(nodes: set[Node]) -> set[Node]:
    """Return the matrices whose inverses are among `nodes`, and their factors."""
    inverses = (n for n in nodes if isinstance(n, Apply) and n.operation is INVERSE)
    return _with_factors({inverse.arguments[0][0] for inverse in inverses})


def _with_factors(nodes: set[Node]) -> set[Node]:
    """Return the nodes and the factors of products among them."""
    factors = {factor for node in nodes if isinstance(node, Einsum) for factor, _ in node.factors}
    return nodes | factors


def absorb_projector(product: Product) -> Product | None:
    """A A⁺ A = A and A⁺ A A⁺ = A⁺, where A A⁺ and A⁺ A, which are symmetric, may stand transposed
    and on either side, as in Aᵀ A A⁺ = Aᵀ (Penrose, A generalized inverse for matrices, 1955)."""
    for position, inverse, labels in _applied(product, PINV):
        if inverse.parameters:
            continue
        matrices = [*occurrences(product, inverse.arguments[0][0])]
        inverses = [
            ((i,), axes, ()) for i, (node, axes) in enumerate(product.factors) if node is inverse
        ]
        for positions, outer, hidden in matrices:
            for ends, summed, axis in _projections(outer, labels):
                projector = (position, *positions)
                if not product.is_private(summed, _count(product, summed, projector)):
                    continue
                for absorbing in (*matrices, *inverses):
                    factors, axes, _ = absorbing
                    if axes[:-2] != labels[:-2]:
                        continue
                    label = axes[axis if absorbing in matrices else -3 - axis]
                    together = (*projector, *factors)
                    overlaps = len({*together}) < len(together) or axes.count(label) > 1
                    if overlaps or label not in ends:
                        continue
                    if product.is_private(label, _count(product, label, together)):
                        (end,) = {*ends} - {label}
                        cofactor = product.without(*projector)
                        for inner in (summed, *hidden):
                            cofactor = cofactor.without(summed=inner)
                        return cofactor.renamed(label, end)
    return None


def _projections(matrix: Labels, inverse: Labels) -> Iterator[tuple[Labels, int, int]]:
    """Yield how a matrix and its pseudoinverse are multiplied, as A A⁺ or A⁺ A: the labels of the
    product's axes, the label summed over, and the axis of A that the product projects."""
    (rows, columns), (above, below) = matrix[-2:], inverse[-2:]
    if matrix[:-2] == inverse[:-2] and rows != columns and above != below:
        if columns == above and rows != below:
            yield (rows, below), columns, -2
        if rows == below and columns != above:
            yield (columns, above), rows, -1


def _count(product: Product, label: int, positions: tuple[int, ...]) -> int:
    """Count how often the factors at `positions` have a label."""
    return sum(product.factors[position][1].count(label) for position in positions)


def meets_its_inverse(total: Sum, product: Product) -> bool:
    """Return whether a sum in a product has a term with an inverse of one of the product's other
    factors: multiplied out, such a residual, as A (A⁺ B) - B times Aᵀ, may vanish."""
    nodes = {factor for term in total.terms if isinstance(term, Einsum) for factor in term.children}
    inverted = {
        argument
        for node in nodes
        if isinstance(node, Apply) and node.operation in (INVERSE, PINV)
        for argument, _ in node.arguments
    }
    return bool(_with_factors(inverted) & {factor for factor, _ in product.factors})
