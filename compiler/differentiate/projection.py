"""Orthogonal projections of cotangents and Jacobians on the structures of inputs."""

from __future__ import annotations

import sympy

from derivatrix.compiler.ir.nodes import Delta, Leaf, Node, Sum, Triangle, einsum
from derivatrix.compiler.ir.structure import facts

PROJECTED = {
    "symmetric": "symmetric",
    "spd": "symmetric",
    "lower": "lower triangular",
    "upper": "upper triangular",
    "diagonal": "diagonal",
    "orthogonal": "tangential",
}
"""Structures on which derivatives are projected, and the adjectives of their matrices."""


def project(node: Node, leaf: Leaf) -> Node:
    """Project a cotangent or Jacobian, whose last axes are those of `leaf`, orthogonally on the
    structure of `leaf`; for an orthogonal matrix, on the tangent space at it."""
    if leaf.structure not in PROJECTED:
        return node
    if leaf.structure == "orthogonal":
        return tangential_part(node, leaf, node.ndim - 2)
    axes = tuple(range(node.ndim))
    if PROJECTED[leaf.structure] == "symmetric":
        return _symmetric_part(node, axes)
    row, column = axes[-2:]
    rows, columns = node.shape[-2:]
    mask, labels = {
        "lower": (Triangle(rows, columns), (row, column)),
        "upper": (Triangle(columns, rows), (column, row)),
        "diagonal": (Delta(rows), (row, column)),
    }[leaf.structure]
    return einsum([(node, axes), (mask, labels)], axes)


def _symmetric_part(node: Node, axes: tuple[int, ...]) -> Node:
    """Compute (A + Aᵀ) / 2, where A are the last two axes; symmetric terms are left alone."""
    if isinstance(node, Sum):
        symmetric = [term for term in node.terms if "symmetric" in facts(term)]
        general = tuple(term for term in node.terms if term not in symmetric)
        if symmetric and general:  # halves of a symmetric term would only be added up again
            return Sum((*symmetric, _symmetric_part(Sum(general, node.shape), axes)), node.shape)
    swapped = (*axes[:-2], axes[-1], axes[-2])
    halves = tuple(einsum([(node, labels)], axes, sympy.S.Half) for labels in (axes, swapped))
    return Sum(halves, node.shape)


def tangential_part(node: Node, leaf: Leaf, row: int) -> Node:
    """Compute (A - Q Aᵀ Q) / 2, where A are the axes `row` and `row + 1`: the nearest matrix with
    Qᵀ A + Aᵀ Q = 0 (Edelman, Arias and Smith, 1998, 2.2.1). Before these axes are the stacked
    axes of Q, if any."""
    axes = list(range(node.ndim))
    stack = axes[row - leaf.ndim + 2 : row]
    transposed = (node, [*axes[:row], "i", "j", *axes[row + 2 :]])
    left, right = (leaf, (*stack, row, "j")), (leaf, (*stack, "i", row + 1))
    product = einsum([transposed, left, right], axes, -sympy.S.Half)
    return Sum((einsum([(node, axes)], axes, sympy.S.Half), product), node.shape)
