"""Rearrangements of entries: diagonals, triangles, permuted axes, joined arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy

from derivatrix.compiler.frontends.reshape import reshape
from derivatrix.compiler.ir import arrays, dimensions
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.arrays import Array, asarray
from derivatrix.compiler.ir.broadcasting import Axis, normalise_axes, normalise_axis
from derivatrix.compiler.ir.dimensions import Shape, Wrapped
from derivatrix.compiler.ir.literals import items
from derivatrix.compiler.ir.messages import disagreement
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.operations.sorting import SORT
from derivatrix.runtime.errors import ShapeError, UnsupportedError

ARRAYS = "a list of arrays"
"""The expected argument, for error messages."""


def diag(array: Any, k: int = 0) -> Array:
    """Diagonal number `k` of a matrix, or the square matrix with a vector on that diagonal."""
    operand = asarray(array)
    if operand.ndim != 1:
        return diagonal(operand, k)
    if not k:
        delta = ir.Delta(operand.node.shape[0])
        return Array(ir.einsum([(operand.node, "i"), (delta, "ij")], "ij"))
    row, column = _start(k)
    count = operand.node.shape[0]
    rows = ir.Slice(count, count + abs(k), row, 1)
    columns = ir.Slice(count, count + abs(k), column, 1)
    return Array(ir.einsum([(operand.node, "d"), (rows, "di"), (columns, "dj")], "ij"))


def diagonal(array: Any, offset: int = 0) -> Array:
    """Diagonal number `offset` of the last two axes: above the main one where it is positive.

    Raises ShapeError where the dimensions do not say how long it is.
    """
    operand = asarray(array)
    if operand.ndim < 2:
        raise disagreement("diagonal({})", [operand.node], "expected a matrix")
    if offset:
        row, column = _start(offset)
        operand = operand[..., row:, column:]
    rows, columns = operand.node.shape[-2:]
    longer = sympy.expand(rows - columns)
    if longer:
        if not longer.is_Integer:
            raise disagreement("diagonal({})", [operand.node], "expected a square matrix")
        count = columns if longer > 0 else rows
        operand = operand[..., :count, :count]
    stacked = list(range(operand.ndim - 2))
    return Array(ir.einsum([(operand.node, (*stacked, "d", "d"))], (*stacked, "d")))


def _start(offset: int) -> tuple[sympy.Integer, sympy.Integer]:
    """Return the row and the column of the first entry of a diagonal."""
    _require_integer(offset)
    return sympy.Integer(max(-offset, 0)), sympy.Integer(max(offset, 0))


def _require_integer(offset: object) -> None:
    if isinstance(offset, bool) or not isinstance(offset, (int, np.integer)):
        raise UnsupportedError(f"the number of a diagonal is an integer, not {shown(offset)}")


def tril(array: Any, k: int = 0) -> Array:
    """The lower triangle of the last two axes."""
    return _triangle(asarray(array), k, upper=False)


def triu(array: Any, k: int = 0) -> Array:
    """The upper triangle of the last two axes."""
    return _triangle(asarray(array), k, upper=True)


def _triangle(operand: Array, k: int, upper: bool) -> Array:
    form = "triu({})" if upper else "tril({})"
    if operand.ndim < 2:
        raise disagreement(form, [operand.node], "expected a matrix")
    _require_integer(k)
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
    return operand.T if axes is None else arrays.transpose(operand, items(axes, "a list of axes"))


def matrix_transpose(array: Any) -> Array:
    """The last two axes exchanged."""
    return asarray(array).mT


def swapaxes(array: Any, first: int, second: int) -> Array:
    """Two axes exchanged."""
    operand = asarray(array)
    order = list(range(operand.ndim))
    i, j = normalise_axis(first, operand.ndim), normalise_axis(second, operand.ndim)
    order[i], order[j] = order[j], order[i]
    return arrays.transpose(operand, order)


def moveaxis(array: Any, source: Axis, destination: Axis) -> Array:
    """Axes moved to other places."""
    operand = asarray(array)
    old = normalise_axes(source, operand.ndim)
    new = normalise_axes(destination, operand.ndim)
    if len(old) != len(new):
        raise ShapeError(f"moveaxis: {source} and {destination} do not pair")
    order = [axis for axis in range(operand.ndim) if axis not in old]
    for place, axis in sorted(zip(new, old, strict=True)):
        order.insert(place, axis)
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
        axes = tuple(i for i, size in enumerate(operand.node.shape) if size == 1)
    else:
        axes = normalise_axes(axis, operand.ndim)
    for position in axes:
        if operand.node.shape[position] != 1:
            problem = f"axis {position} is not of length 1"
            raise disagreement("squeeze({})", [operand.node], problem)
    return operand[tuple(0 if i in axes else slice(None) for i in range(operand.ndim))]


def broadcast_to(array: Any, shape: Sequence[Any]) -> Array:
    """`array` stretched to `shape`."""
    sizes = items(shape, "a shape") if np.iterable(shape) else [shape]
    return arrays.broadcast_to(asarray(array), dimensions.as_shape((sizes,)))


def stack(parts: Sequence[Any], axis: int = 0) -> Array:
    """Arrays of one shape along a new axis."""
    stacked = arrays.stack([asarray(part) for part in items(parts, ARRAYS)])
    return moveaxis(stacked, 0, axis)


def concatenate(parts: Sequence[Any], axis: int | None = 0) -> Array:
    """Arrays joined along an existing axis; all their entries one after the other for None."""
    operands = [asarray(part) for part in items(parts, ARRAYS)]
    if axis is None:
        operands, axis = [reshape(part, -1) for part in operands], 0
    if not operands:
        raise ShapeError("there is nothing to concatenate")
    rank = operands[0].ndim
    if not rank:
        raise ShapeError("concatenate joins arrays along an axis; stack joins scalars")
    position = normalise_axis(axis, rank)
    for part in operands[1:]:
        if _other_sizes(part, position) != _other_sizes(operands[0], position) or part.ndim != rank:
            problem = f"expected equal shapes apart from axis {position}"
            pair = [operands[0].node, part.node]
            raise disagreement("concatenating {} and {}", pair, problem)
    total = sympy.expand(sympy.Add(*(part.node.shape[position] for part in operands)))
    # a sum of the parts, each placed along the axis: derivatives of sums and products need no rule
    terms, start = [], sympy.S.Zero
    for part in operands:
        count = part.node.shape[position]
        labels: list[Any] = list(range(rank))
        labels[position] = "part"
        placement = (ir.Slice(count, total, start, 1), ("part", position))
        terms.append(ir.einsum([(part.node, labels), placement], range(rank)))
        start = sympy.expand(start + count)
    return Array(ir.Sum(tuple(terms), terms[0].shape))


def _other_sizes(array: Array, axis: int) -> Shape:
    return array.node.shape[:axis] + array.node.shape[axis + 1 :]


concat = concatenate


def block(rows: Any) -> Array:
    """An array of blocks, from nested lists as numpy.block: the innermost are joined along the
    last axis. Numbers are blocks of one entry, and vectors rows."""
    depth = _nesting(rows)
    return _join_blocks(rows, depth, max(depth, _max_ndim(rows)))


def _nesting(rows: Any) -> int:
    """Return the nesting depth of lists. Raises ShapeError unless it is the same for all
    entries."""
    if not isinstance(rows, (list, tuple)):
        return 0
    depths = {_nesting(row) for row in rows}
    if len(depths) != 1:
        raise ShapeError(
            f"block: {shown(rows)} is empty, or has lists beside entries that are no lists"
        )
    return depths.pop() + 1


def _max_ndim(rows: Any) -> int:
    return max(map(_max_ndim, rows)) if isinstance(rows, (list, tuple)) else asarray(rows).ndim


def _join_blocks(rows: Any, depth: int, rank: int) -> Array:
    if not depth:
        return arrays.at_least(asarray(rows), rank)
    return concatenate([_join_blocks(row, depth - 1, rank) for row in rows], axis=-depth)


def vstack(parts: Sequence[Any]) -> Array:
    """Arrays joined as rows."""
    return concatenate([arrays.at_least(asarray(part), 2) for part in items(parts, ARRAYS)])


def hstack(parts: Sequence[Any]) -> Array:
    """Arrays joined as columns (vectors end to end)."""
    operands = [arrays.at_least(asarray(part), 1) for part in items(parts, ARRAYS)]
    return concatenate(operands, axis=1 if operands and operands[0].ndim > 1 else 0)


def column_stack(parts: Sequence[Any]) -> Array:
    """Arrays joined as columns, each vector a column."""
    operands = [asarray(part) for part in items(parts, ARRAYS)]
    columns = [part if part.ndim > 1 else arrays.at_least(part, 1)[:, None] for part in operands]
    return concatenate(columns, axis=1)


def flip(array: Any, axis: Axis = None) -> Array:
    """The entries in the opposite order along `axis` (all axes by default)."""
    operand = asarray(array)
    axes = normalise_axes(axis, operand.ndim)
    return operand[tuple(slice(None, None, -1 if i in axes else 1) for i in range(operand.ndim))]


def roll(array: Any, shift: int, axis: int | None = None) -> Array:
    """The entries moved by `shift` places along `axis`, those beyond the end to the start. The
    axis may be left out for a vector."""
    operand = asarray(array)
    if axis is None and operand.ndim != 1:
        raise UnsupportedError("roll of an array that is no vector needs an axis")
    if isinstance(shift, bool) or not isinstance(shift, (int, np.integer, sympy.Expr)):
        raise UnsupportedError(f"roll: shift is an integer, not {shown(shift)}")
    position = normalise_axis(axis or 0, operand.ndim)
    size = operand.node.shape[position]
    if not shift:
        return operand
    distance = sympy.sympify(shift)
    if distance.is_nonnegative is None and distance.is_nonpositive is None:
        raise UnsupportedError(
            f"roll: the sign of the shift {shown(shift)} depends on sizes; write it as a size or "
            "number, or its negative"
        )
    # for both signs the remainder of |shift|, so that opposite rolls cancel
    places = Wrapped(sympy.Abs(distance), size)
    start = size - places if distance.is_nonnegative else places
    leading = (slice(None),) * position
    parts = operand[(*leading, slice(start, None))], operand[(*leading, slice(None, start))]
    return concatenate(parts, position)


def sort(array: Any, axis: int | None = -1) -> Array:
    """The entries in ascending order along `axis`; all entries as a vector for None. The derivative
    at equal entries is that of a stable order, as NumPy's."""
    operand = reshape(array, -1) if axis is None else asarray(array)
    position = -1 if axis is None else axis
    return moveaxis(arrays.apply(SORT, moveaxis(operand, position, -1)), -1, position)


def diff(array: Any, n: int = 1, axis: int = -1) -> Array:
    """The differences of neighbours along `axis`, `n` times over."""
    result = asarray(array)
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
        raise UnsupportedError(f"diff: n is a number of times, 0 or more, not {shown(n)}")
    position = normalise_axis(axis, result.ndim)
    lower = (slice(None),) * position + (slice(None, -1),)
    upper = (slice(None),) * position + (slice(1, None),)
    for _ in range(n):
        result = result[upper] - result[lower]
    return result
