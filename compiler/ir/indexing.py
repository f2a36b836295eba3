"""NumPy's indexing by integers, slices, None, Ellipsis and a list, on symbolic sizes too."""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import numpy as np
import sympy

from derivatrix.compiler.ir import dimensions
from derivatrix.compiler.ir.dimensions import Dimension, shape_text
from derivatrix.compiler.ir.nodes import Gather, Node, Slice, einsum
from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import ShapeError, UnsupportedError


def take(node: Node, index: object) -> Node:
    """Return node[index]. Raises ShapeError or UnsupportedError."""
    parts = _entries(index if isinstance(index, tuple) else (index,), node)
    _require_one_list(parts)
    factors: list[tuple[Node, tuple[Any, ...]]] = []
    labels: list[Any] = []
    output: list[Any] = []
    sizes: dict[Any, Dimension] = {}
    axis = 0
    for part in parts:
        if part is None:
            output.append(("new", len(output)))
            sizes[output[-1]] = sympy.S.One
            continue
        size = node.shape[axis]
        axis += 1
        label, selected = ("axis", axis), ("out", axis)
        labels.append(label)
        if isinstance(part, slice):
            start, count, stride = slice_range(part, size)
            if (start, count, stride) == (0, size, 1):
                output.append(label)
                continue
            factors.append((Slice(count, size, start, stride), (selected, label)))
            output.append(selected)
        elif isinstance(part, (list, np.ndarray)):
            factors.append((Gather(_table(part, size), size), (selected, label)))
            output.append(selected)
        else:
            position = _position(part, size)
            factors.append((Slice(sympy.S.One, size, position, 1), (selected, label)))
    return einsum([(node, labels), *factors], output, sizes=sizes)


def _entries(index: tuple[object, ...], node: Node) -> list[object]:
    """List the entries of an index, one for each axis, and `None` for new axes."""
    count = sum(part is not None and part is not Ellipsis for part in index)
    if count > node.ndim:
        raise ShapeError(f"{count} indices for an array of shape {shape_text(node.shape)}")
    if sum(part is Ellipsis for part in index) > 1:
        raise ShapeError("an index can hold only one ...")
    unindexed: list[object] = [slice(None)] * (node.ndim - count)
    parts: list[object] = []
    for part in index:
        if isinstance(part, np.ndarray) and not part.ndim:
            part = part[()]
        if isinstance(part, EllipsisType):
            parts.extend(unindexed)
            unindexed = []
        else:
            parts.append(part)
    return parts + unindexed


def _require_one_list(parts: list[object]) -> None:
    """Raise UnsupportedError for a list beside anything but slices: NumPy moves its axis then."""
    lists = [part for part in parts if isinstance(part, (list, np.ndarray))]
    scalars = [part for part in parts if not isinstance(part, (slice, list, np.ndarray))]
    if lists and (len(lists) > 1 or scalars):
        raise UnsupportedError(
            "an index with a list of positions can hold slices beside it only; index in two steps"
        )


def _table(part: object, size: Dimension) -> tuple[int, ...]:
    """Return the positions in a list of integers."""
    try:
        table = np.asarray(part)
    except ValueError as error:
        raise ShapeError(
            f"index {shown(part)} is ragged: it has to be a list of integers"
        ) from error
    if table.dtype.kind not in "iu" or table.ndim != 1:
        raise UnsupportedError(
            f"index {shown(part)} is not a list of integers; multiply by a mask, or use where"
        )
    places = [_position(int(place), size) for place in table]
    if not all(place.is_Integer for place in places):
        raise UnsupportedError(
            f"index {shown(part)}: count positions of an axis of symbolic size {size} from its "
            "start"
        )
    return tuple(map(int, places))


def _integer(part: object) -> sympy.Expr:
    """Convert an index or bound: an integer, or arithmetic of dimensions."""
    is_arithmetic = isinstance(part, (int, np.integer, sympy.Expr)) and not isinstance(part, bool)
    value = sympy.sympify(part) if is_arithmetic else None
    if value is None or value.is_Matrix or (value.is_number and not value.is_Integer):
        raise UnsupportedError(
            f"index {shown(part)} of type {type(part).__name__} is not supported; use "
            "integers, slices, None, ... or a list of integers, and where instead of a mask"
        )
    return value


def _position(part: object, size: Dimension) -> Dimension:
    position = _from_end(_integer(part), size)
    if position.is_negative or (size - position).is_nonpositive:
        raise ShapeError(f"index {shown(part)} is out of bounds for an axis of size {size}")
    return dimensions.dimension(position, "index")


def slice_range(part: slice, size: Dimension) -> tuple[Dimension, Dimension, int]:
    """Return start, count and step of a slice of an axis, as NumPy's; bounds of a symbolic axis are
    taken to lie within it. Raises ShapeError or UnsupportedError."""
    step = _step(part)
    bounds = [None if bound is None else _integer(bound) for bound in (part.start, part.stop)]
    if size.is_Integer and all(bound is None or bound.is_Integer for bound in bounds):
        low, high = (None if bound is None else int(bound) for bound in bounds)
        numbers = range(*slice(low, high, step).indices(int(size)))
        return sympy.Integer(numbers.start), sympy.Integer(len(numbers)), step
    default_start, default_stop = (
        (sympy.S.Zero, size) if step > 0 else (size - 1, sympy.S.NegativeOne)
    )
    start = default_start if bounds[0] is None else _from_end(bounds[0], size)
    stop = default_stop if bounds[1] is None else _from_end(bounds[1], size)
    count = sympy.expand((stop - start) / step)
    if abs(step) > 1:
        count = sympy.ceiling(count)
    if not (count.is_Integer or abs(step) == 1):
        raise UnsupportedError(
            f"a step of {shown(step)} over an axis of symbolic size {size} has no polynomial "
            "length; give the axis a literal size"
        )
    if count.is_negative:
        count = sympy.S.Zero
    return sympy.expand(start), dimensions.dimension(count, "slice"), step


def _step(part: slice) -> int:
    step = sympy.S.One if part.step is None else _integer(part.step)
    if not step.is_Integer:
        raise UnsupportedError(f"a slice's step is an integer, not {part.step}")
    if step == 0:
        raise ShapeError("slice step cannot be zero")
    return int(step)


def _from_end(position: sympy.Expr, size: Dimension) -> Dimension:
    """Count a negative position from the end."""
    return sympy.expand(size + position) if position.is_negative else position
