"""Commuting matrices, which are functions of one matrix, and orthogonal matrices."""

from collections.abc import Sequence
from functools import lru_cache

from derivatrix.compiler.ir.nodes import Apply, Delta, Einsum, Node, Sum
from derivatrix.compiler.ir.structure import facts

Origin = tuple[Node, bool]
"""A matrix, and whether its transpose is meant."""


def commute(a: Node, b: Node) -> bool:
    """Return whether two matrices are written as functions of one matrix: made of it and the
    identity by sums, products, multiples and functions of a matrix."""
    return len(_origins(a, False) | _origins(b, False)) <= 1


@lru_cache(maxsize=65536)
def _origins(node: Node, transposed: bool) -> frozenset[Origin]:
    """Return the matrices of which `node` or its transpose is a function: none for the identity,
    one for functions of a single matrix, else `node` itself."""
    if isinstance(node, Delta):
        return frozenset()
    parts: Sequence[Origin] = []
    if isinstance(node, Apply) and not node.stack and node.operation.is_matrix_function:
        parts = [(node.arguments[0][0], False)]
    elif isinstance(node, Sum) and node.ndim == 2:
        parts = [(term, False) for term in node.terms]
    elif isinstance(node, Einsum) and node.ndim == 2:
        parts = chain(node)
    origins = frozenset().union(
        *(_origins(part, transposed ^ is_transposed) for part, is_transposed in parts)
    )
    if parts and len(origins) <= 1:
        return origins
    return frozenset({(node, transposed and "symmetric" not in facts(node))})


def is_orthogonal(node: Node) -> bool:
    """Return whether a matrix is a product of orthogonal ones by its construction, as of singular
    vectors of a square matrix."""
    if not isinstance(node, Einsum) or node.ndim != 2:
        return "orthogonal" in facts(node)
    is_product = node.coefficient == 1 and all(labels for _, labels in node.factors)
    return is_product and bool(factors := chain(node)) and all(is_orthogonal(f) for f, _ in factors)


def chain(node: Einsum) -> Sequence[Origin]:
    """Return the matrices of a matrix product with any scalar factors; [] for others."""
    links = [(factor, labels) for factor, labels in node.factors if labels]
    end, matrices = 0, []
    while links:
        touching = [link for link in links if end in link[1]]
        if len(touching) != 1 or len(set(touching[0][1])) != 2 or touching[0][0].ndim != 2:
            return []
        factor, (row, column) = touching[0]
        matrices.append((factor, row != end))
        links.remove(touching[0])
        end = column if row == end else row
    return matrices if end == 1 else []
