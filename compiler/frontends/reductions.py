"""Sums, means, norms and the like over axes."""

from __future__ import annotations

from typing import Any

import sympy

from derivatrix.compiler import arrays, ir
from derivatrix.compiler.arrays import Array, apply, asarray
from derivatrix.compiler.broadcasting import Axis, normalise_axes, normalise_axis
from derivatrix.compiler.frontends.elementwise import abs, sqrt
from derivatrix.compiler.frontends.rearrange import expand_dims, moveaxis
from derivatrix.compiler.operations.softmax import LOGSUMEXP, SOFTMAX
from derivatrix.runtime.errors import DeclarationError, UnsupportedError


def sum(array: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """The sum over `axis` (all axes by default)."""
    return arrays.sum_over(asarray(array), axis, keepdims)


def mean(array: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """The mean over `axis` (all axes by default)."""
    return _averaged(asarray(array), axis, 0, keepdims)


def var(array: Any, axis: Axis = None, *, ddof: int = 0, keepdims: bool = False) -> Array:
    """The variance over `axis` (all axes by default): the sum of the squared distances from the
    mean, divided by the count less `ddof`. Raises DeclarationError where that is not positive."""
    operand = asarray(array)
    centred = operand - mean(operand, axis, keepdims=True)
    return _averaged(centred**2, axis, ddof, keepdims)


def std(array: Any, axis: Axis = None, *, ddof: int = 0, keepdims: bool = False) -> Array:
    """The square root of `var`; its derivative where all entries are equal is nan."""
    return sqrt(var(array, axis, ddof=ddof, keepdims=keepdims))


def _averaged(operand: Array, axis: Axis, ddof: int, keepdims: bool) -> Array:
    """The sum over `axis`, divided by the count less `ddof`."""
    if isinstance(ddof, bool) or not isinstance(ddof, int):
        raise UnsupportedError(f"ddof is an integer, not {ddof!r}")
    sizes = [operand.node.shape[i] for i in normalise_axes(axis, operand.ndim)]
    count = sympy.expand(sympy.prod(sizes) - ddof)
    if count.is_nonpositive:
        raise DeclarationError(f"{sympy.prod(sizes)} entries less ddof={ddof} leave none to share")
    return arrays.scale(arrays.sum_over(operand, axis, keepdims), 1 / count)


def cumsum(array: Any, axis: int = -1) -> Array:
    """The running sum along `axis`."""
    operand = asarray(array)
    position = normalise_axis(axis, operand.ndim)
    size = operand.node.shape[position]
    labels: list[Any] = list(range(operand.ndim))
    output = list(labels)
    labels[position] = "summed"
    mask = (ir.Triangle(size, size), (position, "summed"))
    return Array(ir.einsum([(operand.node, labels), mask], output))


def norm(array: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Array:
    """The 2-norm of a vector, the Frobenius norm of a matrix; ord=1 for a vector's 1-norm.

    The derivative at zero is nan, as there is none. Squares are summed without scaling, so the
    2-norm is inf above 1e154 and 0 below 1e-162 (1e19 and 1e-23 in float32).
    """
    operand = asarray(array)
    axes = normalise_axes(axis, operand.ndim)
    euclidean = ord is None or (ord == 2 and len(axes) == 1) or (ord == "fro" and len(axes) == 2)
    if euclidean:
        return sqrt(sum(operand**2, axes, keepdims=keepdims))
    if len(axes) == 1 and isinstance(ord, (int, float)) and 1 <= ord < float("inf"):
        total = sum(abs(operand) ** ord, axes, keepdims=keepdims)
        return total ** (1 / sympy.nsimplify(ord)) if ord != 1 else total
    raise UnsupportedError(f"norm: ord={ord!r} over {len(axes)} axes has no rule")


def softmax(array: Any, axis: int = -1) -> Array:
    """exp(x) / sum(exp(x)) over `axis`, without overflow."""
    operand = asarray(array)
    moved = apply(SOFTMAX, moveaxis(operand, axis, -1))
    return moveaxis(moved, -1, axis)


def logsumexp(array: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """log(sum(exp(x))) over `axis` (all axes by default), without overflow."""
    operand = asarray(array)
    axes = sorted(normalise_axes(axis, operand.ndim))
    result = operand
    for position in reversed(axes):
        result = apply(LOGSUMEXP, moveaxis(result, position, -1))
    for position in axes if keepdims else ():
        result = expand_dims(result, position)
    return result


def log_softmax(array: Any, axis: int = -1) -> Array:
    """log(softmax(x)), without overflow."""
    operand = asarray(array)
    return operand - logsumexp(operand, axis, keepdims=True)


__all__ = [
    "cumsum",
    "log_softmax",
    "logsumexp",
    "mean",
    "norm",
    "softmax",
    "std",
    "sum",
    "var",
]
