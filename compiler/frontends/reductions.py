"""Reductions over axes: sums, means, extrema, products; softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import sympy

from derivatrix.compiler.frontends.elementwise import sqrt
from derivatrix.compiler.frontends.rearrange import expand_dims, moveaxis
from derivatrix.compiler.ir import arrays
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.arrays import Array, apply, asarray
from derivatrix.compiler.ir.broadcasting import Axis, normalise_axes, normalise_axis
from derivatrix.compiler.ir.operation import Operation
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.operations.extrema import MAXIMUM
from derivatrix.compiler.operations.products import PRODUCT
from derivatrix.compiler.operations.softmax import LOG_SOFTMAX, LOGSUMEXP, SOFTMAX
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
    # not E[x²] - E[x]², which cancels where the mean is large
    operand = asarray(array)
    centred = operand - mean(operand, axis, keepdims=True)
    return _averaged(centred**2, axis, ddof, keepdims)


def std(array: Any, axis: Axis = None, *, ddof: int = 0, keepdims: bool = False) -> Array:
    """The square root of `var`; its derivative where all entries are equal is nan."""
    return sqrt(var(array, axis, ddof=ddof, keepdims=keepdims))


def _averaged(operand: Array, axis: Axis, ddof: int, keepdims: bool) -> Array:
    """Divide the sum over `axis` by the number of entries minus `ddof`."""
    if isinstance(ddof, bool) or not isinstance(ddof, (int, np.integer)):
        raise UnsupportedError(f"ddof is an integer, not {shown(ddof)}")
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


def prod(array: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """The product over `axis` (all axes by default). Entries may be zero: derivatives are
    products of the other entries."""
    return _axis_by_axis(PRODUCT, array, axis, keepdims)


def _axis_by_axis(operation: Operation, array: Any, axis: Axis, keepdims: bool) -> Array:
    """Apply an operation that reduces vectors to numbers along one axis after the other."""
    result = asarray(array)
    axes = sorted(normalise_axes(axis, result.ndim))
    for position in reversed(axes):  # from the last: the positions of the others stay valid
        result = apply(operation, moveaxis(result, position, -1))
    for position in axes if keepdims else ():
        result = expand_dims(result, position)
    return result


def max(array: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """The largest entry over `axis` (all axes by default). Where several are equally large there
    is no derivative; they share it evenly."""
    return _axis_by_axis(MAXIMUM, array, axis, keepdims)


def min(array: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """The least entry over `axis` (all axes by default); see `max`."""
    # one operation, with its rules and kernels, serves both
    return -max(-asarray(array), axis, keepdims=keepdims)


def softmax(array: Any, axis: int = -1) -> Array:
    """exp(x) / sum(exp(x)) over `axis`, without overflow."""
    return moveaxis(apply(SOFTMAX, moveaxis(array, axis, -1)), -1, axis)


def logsumexp(array: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """log(sum(exp(x))) over `axis` (all axes by default), without overflow."""
    return _axis_by_axis(LOGSUMEXP, array, axis, keepdims)


def log_softmax(array: Any, axis: int = -1) -> Array:
    """log(softmax(x)), without overflow."""
    return moveaxis(apply(LOG_SOFTMAX, moveaxis(array, axis, -1)), -1, axis)
