"""Rules for eigenvectors, singular vectors and spectra in products; see `products`."""

from __future__ import annotations

from collections.abc import Sequence

from derivatrix.compiler.ir.nodes import Apply, Delta
from derivatrix.compiler.ir.product import Product
from derivatrix.compiler.ir.structure import ORTHONORMAL, facts
from derivatrix.compiler.operations.eigen import EIGH, EIGVALSH
from derivatrix.compiler.operations.singular import NUCLEAR, SVD, SVDVALS


def cancel_orthonormal(product: Product) -> Product | None:
    """QᵀQ = I for orthonormal columns that an operation returns, Q Qᵀ = I where Q is square."""
    for p, (node, _) in enumerate(product.factors):
        if not isinstance(node, Apply) or node.ndim < len(node.stack) + 2:
            continue
        argument_facts = [facts(argument) for argument, _ in node.arguments]
        if ORTHONORMAL not in node.operation.facts(argument_facts, node.output):
            continue
        axes = (-2, -1) if node.shape[-1] == node.shape[-2] else (-2,)
        for q, (factor, _) in enumerate(product.factors):
            if q <= p or factor is not node:
                continue
            simpler = cancel_pair(product, p, q, axes)
            if simpler is not None:
                return simpler
    return None


def cancel_pair(product: Product, p: int, q: int, axes: Sequence[int]) -> Product | None:
    """Replace the factors Q, Q at positions p and q by the identity if they are multiplied along
    one of the axes -2 (QᵀQ) and -1 (QQᵀ), and are the same matrix of a stack."""
    (node, a), (_, b) = product.factors[p], product.factors[q]
    if a[:-2] != b[:-2]:
        return None
    for axis in axes:
        if a[axis] == b[axis] and product.is_private(a[axis], 2):
            cofactor = product.without(p, q, summed=a[axis])
            return cofactor.times((Delta(node.shape[-1]), (a[-3 - axis], b[-3 - axis])))
    return None


def sum_spectrum(product: Product) -> Product | None:
    """Σ λ = tr(A), Σ λ² = Σ A[i,j]², likewise Σ σ²; Σ σ is the nuclear norm."""
    for node, labels in product.factors:
        if not isinstance(node, Apply):
            continue
        is_singular_values = node.operation is SVDVALS or (
            node.operation is SVD and node.output == 1
        )
        if not (is_singular_values or _is_eigenvalues(node)):
            continue
        copies = [i for i, factor in enumerate(product.factors) if factor == (node, labels)]
        if len(copies) > 2 or not product.is_private(labels[-1], len(copies)):
            continue
        cofactor = product.without(*copies, summed=labels[-1])
        matrix, stack = node.arguments[0]
        outer = tuple(labels[place] for place in stack)
        row, column = product.fresh(2)
        if len(copies) == 2:
            return cofactor.times(*[(matrix, (*outer, row, column))] * 2)
        if _is_eigenvalues(node):
            return cofactor.times((matrix, (*outer, row, row)))
        return cofactor.times((Apply(NUCLEAR, node.arguments, node.stack), labels[:-1]))
    return None


def _is_eigenvalues(node: Apply) -> bool:
    return node.operation is EIGVALSH or (node.operation is EIGH and node.output == 0)
