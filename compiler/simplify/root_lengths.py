"""Lengths √(Σ x²) as nodes of their own; functions of the square Σ x² are written as functions of
them.

The square may exceed the range of numbers where the length does not. So kernels and NumPy's text
compute the length from scaled entries where needed, and all else from the length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import sympy
from sympy.core.relational import Relational

from derivatrix.compiler.ir.graph import transformed
from derivatrix.compiler.ir.nodes import (
    Einsum,
    Map,
    Node,
    Structural,
    Sum,
    einsum,
    labels_of,
    slot,
    used_slots,
)
from derivatrix.compiler.ir.scalar_functions import length
from derivatrix.compiler.simplify.squares import degree_of, slots_of

LENGTH = length(slot(0))
"""The expression of a node that is the root of its argument, a sum of squares."""


def with_root_lengths(
    roots: Sequence[Node], accepts: Callable[[Node], bool] = lambda square: True
) -> list[Node]:
    """Write functions of lengths' squares, if `accepts` them, as functions of the lengths."""
    return transformed(roots, partial(_of_lengths, accepts=accepts))


def is_short_sum(node: Node) -> bool:
    """Return whether each of many entries is a sum of a few, as the squared distances of points in
    space: scaling in their roots makes such vector code half as slow again."""
    if isinstance(node, Sum):
        return any(map(is_short_sum, node.terms))
    sizes = [node.sizes[label] for label in node.contracted] if isinstance(node, Einsum) else []
    return bool(node.ndim and sizes) and all(size.is_Integer for size in sizes)


def _of_lengths(node: Node, accepts: Callable[[Node], bool]) -> Node:
    if not isinstance(node, Map):
        return node
    slots, arguments, expression = slots_of(node), list(node.arguments), node.expression
    powers = expression.atoms(sympy.Pow)
    bases = {p.base for p in powers if p.exp.is_Rational and p.exp.q == 2 and p.base.free_symbols}
    for base in sorted(bases, key=sympy.default_sort_key):
        square = slots.get(base) or Map(*used_slots(base, node.arguments))
        if degree_of(square) is not None and _has_products(square) and accepts(square):
            root = sympy.Symbol("length", nonnegative=True)
            expression = expression.xreplace({base: root**2})
            zeros = [t for t in expression.atoms(Relational) if t.args == (root**2, 0)]
            expression = expression.xreplace({t: t.func(root, 0) for t in zeros})
            expression = expression.xreplace({root: slot(len(arguments))})
            arguments.append(_length(square))
    if len(arguments) == len(node.arguments):
        return node
    result = Map(*used_slots(expression, arguments))
    return result.arguments[0] if result.expression == slot(0) else result


def _length(square: Node) -> Node:
    """Return the root of a sum of squares; if it is constant along axes, of the varying part."""
    if isinstance(square, Einsum):
        axes = [axis for axis in range(square.ndim) if axis in labels_of(square.factors)]
        if len(square.factors) == 1 and not square.contracted:
            ((factor, labels),) = square.factors
            return _repeated(factor, labels, square)
        if len(axes) < square.ndim:
            sizes = {label: square.sizes[label] for label in (*axes, *square.contracted)}
            inner = einsum(square.factors, axes, sizes=sizes)
            return _repeated(inner, axes, square)
    return Map(LENGTH, (square,))


def _repeated(part: Node, labels: Sequence[int], square: Einsum) -> Node:
    sizes = dict(enumerate(square.shape))
    root = sympy.sqrt(square.coefficient)
    return einsum([(_length(part), labels)], range(square.ndim), root, sizes)


def _has_products(node: Node) -> bool:
    """Return whether a node is a sum with a product, which overflows before its root does."""
    match node:
        case Einsum() if len(node.factors) == 1:
            return _has_products(node.factors[0][0])
        case Einsum():
            return sum(not isinstance(factor, Structural) for factor, _ in node.factors) > 1
        case Sum():
            return any(map(_has_products, node.terms))
        case Map():
            powers = node.expression.atoms(sympy.Pow, sympy.Mul)
            return any(p.is_Mul or p.exp == 2 for p in powers)
    return False
