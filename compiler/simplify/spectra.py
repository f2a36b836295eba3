"""The rules for factors of matrices in products; see `products`."""

from __future__ import annotations

from collections.abc import Sequence

from derivatrix.compiler.ir.nodes import Apply, Delta
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.structure import ORTHONORMAL, facts
from derivatrix.compiler.operations.eigen import EIGH, EIGVALSH
from derivatrix.compiler.operations.singular import NUCLEAR, SVD, SVDVALS


def cancel_orthonormal(product: Product) -> Product | None:
    """QᵀQ = I for the orthonormal columns that an operation gives, Q Qᵀ = I where Q is square."""
    for one, (node, labels) in enumerate(product.factors):
        if not isinstance(node, Apply) or node.ndim < len(node.stack) + 2:
            continue
        known = [facts(argument) for argument, _ in node.arguments]
        if ORTHONORMAL not in node.operation.facts(known, node.output):
            continue
        square = node.shape[-1] == node.shape[-2]
        for two in range(one + 1, len(product.factors)):
            other, others = product.factors[two]
            if other is not node or others[:-2] != labels[:-2]:
                continue
            simpler = cancel_pair(product, one, two, (-2, -1) if square else (-2,))
            if simpler is not None:
                return simpler
    return None


def cancel_pair(product: Product, one: int, two: int, axes: Sequence[int]) -> Product | None:
    """Two factors Q, Q multiplied along one of the axes -2 (QᵀQ) and -1 (QQᵀ) as the identity."""
    (node, labels), (_, others) = product.factors[one], product.factors[two]
    for axis in axes:
        if labels[axis] == others[axis] and product.private(labels[axis], 2):
            outer = (labels[-3 - axis], others[-3 - axis])
            rest = product.without(one, two, summed=labels[axis])
            return rest.times((Delta(node.shape[-1]), outer))
    return None


def sum_spectrum(product: Product) -> Product | None:
    """The sum of the eigenvalues is the trace, that of their squares the sum of the squares of
    the entries, as for singular values; the sum of these is the nuclear norm."""
    for node, labels in product.factors:
        if not isinstance(node, Apply) or not (_eigenvalues(node) or _singular_values(node)):
            continue
        copies = [i for i, factor in enumerate(product.factors) if factor == (node, labels)]
        if len(copies) > 2 or not product.private(labels[-1], len(copies)):
            continue
        rest = product.without(*copies, summed=labels[-1])
        matrix, stack = node.arguments[0]
        outer = tuple(labels[place] for place in stack)
        row, column = product.fresh(2)
        if len(copies) == 2:
            return rest.times(*[(matrix, (*outer, row, column))] * 2)
        if _eigenvalues(node):
            return rest.times((matrix, (*outer, row, row)))
        return rest.times((Apply(NUCLEAR, node.arguments, node.stack), labels[:-1]))
    return None


def _eigenvalues(node: Apply) -> bool:
    return node.operation is EIGVALSH or (node.operation is EIGH and node.output == 0)


def _singular_values(node: Apply) -> bool:
    return node.operation is SVDVALS or (node.operation is SVD and node.output == 1)
