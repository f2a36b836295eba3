"""Lengths √(Σ x²) as nodes of their own; functions of the square Σ x² are written as functions of
them.

The square may exceed the range of numbers where the length does not. So kernels and NumPy's text
compute the length from scaled entries where needed, and all else from the length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import sympy
from sympy.core.relational import Relational

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.graph import transformed
from derivatrix.compiler.ir.scalar_functions import length
from derivatrix.compiler.simplify.squares import degree_of, slots_of

LENGTH = length(ir.slot(0))
"""The expression of a node that is the root of its argument, a sum of squares."""


def with_root_lengths(
    roots: Sequence[ir.Node],
    accepts: Callable[[ir.Node], bool] = lambda square: True,
    divides: Callable[[ir.Node], bool] = lambda square: False,
) -> list[ir.Node]:
    """Write functions of lengths' squares, if `accepts` them, as functions of the lengths; divide
    by the square of a length instead of a sum of squares that `divides` accepts."""
    return transformed(roots, partial(_of_lengths, accepts=accepts, divides=divides))


def is_short_sum(node: ir.Node) -> bool:
    """Return whether each of many entries is a sum of a few, as the squared distances of points in
    space: their vector code takes half as long again with scaled roots."""
    if isinstance(node, ir.Sum):
        return any(map(is_short_sum, node.terms))
    sizes = [node.sizes[label] for label in node.contracted] if isinstance(node, ir.Einsum) else []
    return bool(node.ndim and sizes) and all(size.is_Integer for size in sizes)


def is_long_sum(node: ir.Node) -> bool:
    """Return whether a node is a sum of squares beside which its root costs nothing."""
    is_summed = isinstance(node, ir.Einsum) and bool(node.contracted)
    return is_summed and degree_of(node) == 2 and not is_short_sum(node)


def _of_lengths(
    node: ir.Node, accepts: Callable[[ir.Node], bool], divides: Callable[[ir.Node], bool]
) -> ir.Node:
    if not isinstance(node, ir.Map):
        return node
    slots, arguments, expression = slots_of(node), list(node.arguments), node.expression
    powers = expression.atoms(sympy.Pow)
    roots = {p.base for p in powers if p.exp.is_Rational and p.exp.q == 2 and p.base.free_symbols}
    bases = roots | {p.base for p in powers if p.exp.is_negative and p.base in slots}
    for base in sorted(bases, key=sympy.default_sort_key):
        square = slots.get(base) or ir.Map(*ir.used_slots(base, node.arguments))
        is_used = accepts if base in roots else divides
        if degree_of(square) is not None and _has_products(square) and is_used(square):
            root = sympy.Symbol("length", nonnegative=True)
            expression = expression.xreplace({base: root**2})
            zeros = [t for t in expression.atoms(Relational) if t.args == (root**2, 0)]
            expression = expression.xreplace({t: t.func(root, 0) for t in zeros})
            expression = expression.xreplace({root: ir.slot(len(arguments))})
            arguments.append(_length(square))
    if len(arguments) == len(node.arguments):
        return node
    result = ir.Map(*ir.used_slots(expression, arguments))
    return result.arguments[0] if result.expression == ir.slot(0) else result


def _length(square: ir.Node) -> ir.Node:
    """Return the root of a sum of squares; if it is constant along axes, of the varying part."""
    if isinstance(square, ir.Einsum):
        axes = [axis for axis in range(square.ndim) if axis in ir.labels_of(square.factors)]
        if len(square.factors) == 1 and not square.contracted:
            ((factor, labels),) = square.factors
            return _repeated(factor, labels, square)
        if len(axes) < square.ndim:
            sizes = {label: square.sizes[label] for label in (*axes, *square.contracted)}
            inner = ir.einsum(square.factors, axes, sizes=sizes)
            return _repeated(inner, axes, square)
    return ir.Map(LENGTH, (square,))


def _repeated(part: ir.Node, labels: Sequence[int], square: ir.Einsum) -> ir.Node:
    sizes = dict(enumerate(square.shape))
    root = sympy.sqrt(square.coefficient)
    return ir.einsum([(_length(part), labels)], range(square.ndim), root, sizes)


def _has_products(node: ir.Node) -> bool:
    """Return whether a node is a sum with a product, which overflows before its root does."""
    match node:
        case ir.Einsum() if len(node.factors) == 1:
            return _has_products(node.factors[0][0])
        case ir.Einsum():
            return sum(not isinstance(factor, ir.Structural) for factor, _ in node.factors) > 1
        case ir.Sum():
            return any(map(_has_products, node.terms))
        case ir.Map():
            powers = node.expression.atoms(sympy.Pow, sympy.Mul)
            return any(p.is_Mul or p.exp == 2 for p in powers)
    return False
