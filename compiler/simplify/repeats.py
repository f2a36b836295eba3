"""Axes along which arrays repeat their entries."""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache

from derivatrix.compiler.ir.nodes import Einsum, Map, Node, Sum, einsum


def of_single_column(node: Map) -> Node | None:
    """Write a function of arrays that repeat their entries along an axis of length 1, as sums with
    keepdims do, as a function of arrays without that axis."""
    axes = {axis for axis in repeating_axes(node) if node.shape[axis] == 1}
    if not axes:
        return None
    kept_axes = [axis for axis in range(node.ndim) if axis not in axes]
    sizes = dict(enumerate(node.shape))
    return einsum([(without_axes(node, axes), kept_axes)], range(node.ndim), sizes=sizes)


@lru_cache(maxsize=65536)
def repeating_axes(node: Node) -> frozenset[int]:
    """Return the axes along which a node is known to repeat its entries."""
    match node:
        case Einsum():
            varying = {
                label
                for factor, labels in node.factors
                for axis, label in enumerate(labels)
                if axis not in repeating_axes(factor)
            }
            return frozenset(range(node.ndim)) - varying
        case Sum() | Map() if node.children:
            return frozenset.intersection(*map(repeating_axes, node.children))
    return frozenset()


def without_axes(node: Node, axes: Set[int]) -> Node:
    """Drop axes along which a node repeats its entries."""
    if not axes:
        return node
    match node:
        case Einsum():
            factors = []
            for factor, labels in node.factors:
                places = {place for place, label in enumerate(labels) if label in axes}
                kept_labels = [label for label in labels if label not in axes]
                factors.append((without_axes(factor, places), kept_labels))
            sizes = {label: size for label, size in enumerate(node.sizes) if label not in axes}
            output = [axis for axis in range(node.ndim) if axis not in axes]
            return einsum(factors, output, node.coefficient, sizes)
        case Sum():
            shape = tuple(size for axis, size in enumerate(node.shape) if axis not in axes)
            return Sum(tuple(without_axes(term, axes) for term in node.terms), shape)
    assert isinstance(node, Map)
    return Map(node.expression, tuple(without_axes(argument, axes) for argument in node.arguments))
