"""The same entries in another arrangement: diagonals, triangles, axes, joined arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from derivatrix.compiler import arrays, ir
from derivatrix.compiler.arrays import Array, asarray
from derivatrix.compiler.dimensions import shape_text
from derivatrix.runtime.errors import ShapeError


def diag(array: Any) -> Array:
    """The diagonal of a matrix, or the diagonal matrix of a vector."""
    operand = asarray(array)
    if operand.ndim == 1:
        delta = ir.Delta(operand.node.shape[0])
        return Array(ir.einsum([(operand.node, "i"), (delta, "ij")], "ij"))
    return diagonal(operand)


def diagonal(array: Any) -> Array:
    """The diagonal of the last two axes, which may differ in length only if both are literal."""
    operand = asarray(array)
    if operand.ndim < 2:
        raise ShapeError(f"diagonal needs a matrix, not shape {shape_text(operand.shape)}")
    rows, columns = operand.node.shape[-2:]
    if rows != columns:
        if not (rows.is_Integer and columns.is_Integer):
            raise ShapeError(f"diagonal needs a square matrix, not {shape_text(operand.shape)}")
        count = int(min(rows, columns))
        operand = operand[..., :count, :count]
    stacked = list(range(operand.ndim - 2))
    return Array(ir.einsum([(operand.node, (*stacked, "d", "d"))], (*stacked, "d")))


def tril(array: Any, k: int = 0) -> Array:
    """The lower triangle of the last two axes."""
    return _triangle(asarray(array), k, upper=False)


def triu(array: Any, k: int = 0) -> Array:
    """The upper triangle of the last two axes."""
    return _triangle(asarray(array), k, upper=True)


def _triangle(operand: Array, k: int, upper: bool) -> Array:
    if operand.ndim < 2:
        raise ShapeError(f"a triangle needs a matrix, not shape {shape_text(operand.shape)}")
    rows, columns = operand.node.shape[-2:]
    labels = range(operand.ndim)
    if upper:
        mask: Any = (ir.Triangle(columns, rows, k), labels[-2:][::-1])
    else:
        mask = (ir.Triangle(rows, columns, -k), labels[-2:])
    return Array(ir.einsum([(operand.node, labels), mask], labels))


def transpose(array: Any, axes: Sequence[int] | None = None) -> Array:
    """The axes in the order given (reversed by default)."""
    operand = asarray(array)
    return operand.T if axes is None else arrays.transpose(operand, tuple(axes))


def matrix_transpose(array: Any) -> Array:
    """The last two axes exchanged."""
    return asarray(array).mT


def swapaxes(array: Any, first: int, second: int) -> Array:
    """Two axes exchanged."""
    operand = asarray(array)
    order = list(range(operand.ndim))
    one, two = normalise_axis(first, operand.ndim), normalise_axis(second, operand.ndim)
    order[one], order[two] = order[two], order[one]
    return arrays.transpose(operand, order)


def moveaxis(array: Any, source: int, destination: int) -> Array:
    """One axis moved to another place."""
    operand = asarray(array)
    order = list(range(operand.ndim))
    order.remove(normalise_axis(source, operand.ndim))
    order.insert(normalise_axis(destination, operand.ndim), normalise_axis(source, operand.ndim))
    return arrays.transpose(operand, order)


def expand_dims(array: Any, axis: int) -> Array:
    """A new axis of length 1."""
    operand = asarray(array)
    position = normalise_axis(axis, operand.ndim + 1)
    return operand[(slice(None),) * position + (None,)]


def squeeze(array: Any, axis: Axis = None) -> Array:
    """Axes of literal length 1 removed (all of them by default)."""
    operand = asarray(array)
    if axis is None:
        chosen = tuple(i for i, size in enumerate(operand.node.shape) if size == 1)
    else:
        chosen = normalise_axes(axis, operand.ndim)
    for position in chosen:
        if operand.node.shape[position] != 1:
            raise ShapeError(f"axis {position} of {shape_text(operand.shape)} is not of length 1")
    return operand[tuple(0 if i in chosen else slice(None) for i in range(operand.ndim))]


def broadcast_to(array: Any, shape: Sequence[Any]) -> Array:
    """`array` stretched to `shape`."""
    return arrays.broadcast_to(asarray(array), _shape((tuple(shape),)))


def stack(parts: Sequence[Any], axis: int = 0) -> Array:
    """Arrays of one shape along a new axis."""
    stacked = arrays.stack([asarray(part) for part in parts])
    return moveaxis(stacked, 0, axis)


def concatenate(parts: Sequence[Any], axis: int = 0) -> Array:
    """Arrays joined along an existing axis."""
    operands = [asarray(part) for part in parts]
    if not operands:
        raise ShapeError("nothing to concatenate")
    position = normalise_axis(axis, operands[0].ndim)
    total = sympy.expand(sympy.Add(*(part.node.shape[position] for part in operands)))
    placed, start = [], sympy.S.Zero
    for part in operands:
        count = part.node.shape[position]
        labels: list[Any] = list(range(part.ndim))
        labels[position] = "part"
        place = (ir.Select(count, total, start, 1), ("part", position))
        placed.append(ir.einsum([(part.node, labels), place], range(part.ndim)))
        start = sympy.expand(start + count)
    return Array(ir.Sum(tuple(placed), placed[0].shape))


concat = concatenate


def block(rows: Sequence[Any]) -> Array:
    """A matrix of blocks, from nested lists as numpy.block."""
    if rows and isinstance(rows[0], (list, tuple)):
        return concatenate([concatenate(row, axis=-1) for row in rows], axis=-2)
    return concatenate(rows, axis=-1)


def vstack(parts: Sequence[Any]) -> Array:
    """Arrays joined as rows."""
    operands = [asarray(part) for part in parts]
    return concatenate([part[None, :] if part.ndim == 1 else part for part in operands])


def hstack(parts: Sequence[Any]) -> Array:
    """Arrays joined as columns (vectors end to end)."""
    operands = [asarray(part) for part in parts]
    return concatenate(operands, axis=0 if operands[0].ndim == 1 else 1)

__all__ = [
    "block",
    "broadcast_to",
    "concat",
    "concatenate",
    "diag",
    "diagonal",
    "expand_dims",
    "hstack",
    "matrix_transpose",
    "moveaxis",
    "squeeze",
    "stack",
    "swapaxes",
    "transpose",
    "tril",
    "triu",
    "vstack",
]
