"""Sums, means, norms and the like over axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from derivatrix.compiler import arrays, ir
from derivatrix.compiler.arrays import Array, asarray
from derivatrix.compiler.broadcasting import normalise_axes, normalise_axis
from derivatrix.compiler.operations.softmax import LOGSUMEXP, SOFTMAX
from derivatrix.runtime.errors import UnsupportedError


Axis = int | Sequence[int] | None


def sum(array: Any, axis: Axis = None, keepdims: bool = False) -> Array:
    """The sum over `axis` (all axes by default)."""
    return asarray(array).sum(axis, keepdims)  # type: ignore[arg-type]


def mean(array: Any, axis: Axis = None, keepdims: bool = False) -> Array:
    """The mean over `axis` (all axes by default)."""
    return asarray(array).mean(axis, keepdims)  # type: ignore[arg-type]


def var(array: Any, axis: Axis = None, keepdims: bool = False) -> Array:
    """The variance (divided by the count) over `axis`."""
    centred = asarray(array) - mean(array, axis, keepdims=True)
    return mean(centred**2, axis, keepdims)


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

    The derivative at zero is nan, as there is none.
    """
    operand = asarray(array)
    axes = normalise_axes(axis, operand.ndim)
    euclidean = ord is None or (ord == 2 and len(axes) == 1) or (ord == "fro" and len(axes) == 2)
    if euclidean:
        return sqrt(sum(operand**2, axes, keepdims))
    if len(axes) == 1 and isinstance(ord, (int, float)) and 1 <= ord < float("inf"):
        total = sum(abs(operand) ** ord, axes, keepdims)
        return total ** (1 / sympy.nsimplify(ord)) if ord != 1 else total
    raise UnsupportedError(f"norm: ord={ord!r} over {len(axes)} axes has no rule")


def softmax(array: Any, axis: int = -1) -> Array:
    """exp(x) / sum(exp(x)) over `axis`, without overflow."""
    operand = asarray(array)
    moved = arrays.apply(SOFTMAX, moveaxis(operand, axis, -1))
    return moveaxis(moved, -1, axis)


def logsumexp(array: Any, axis: Axis = None, keepdims: bool = False) -> Array:
    """log(sum(exp(x))) over `axis` (all axes by default), without overflow."""
    operand = asarray(array)
    axes = sorted(normalise_axes(axis, operand.ndim))
    result = operand
    for position in reversed(axes):
        result = arrays.apply(LOGSUMEXP, moveaxis(result, position, -1))
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
    "sum",
    "var",
]
