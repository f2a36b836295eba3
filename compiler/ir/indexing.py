"""NumPy's indexing by integers, slices, None, Ellipsis and arrays of integers, on symbolic sizes
too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import EllipsisType, NoneType
from typing import Any

import numpy as np
import sympy

from derivatrix.compiler.ir import dimensions
from derivatrix.compiler.ir.dimensions import Dimension, Shape, shape_text
from derivatrix.compiler.ir.nodes import Gather, Node, Reshape, Slice, einsum
from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import ShapeError, UnsupportedError


def take(node: Node, index: object) -> Node:
    """Return node[index]. Raises ShapeError or UnsupportedError."""
    parts = _entries(index if isinstance(index, tuple) else (index,), node)
    tables = _tables(parts, node.shape)
    table_shape = next((table.shape for table in tables.values()), ())
    table_axes = [("table", axis) for axis in range(len(table_shape))]
    entry = table_axes[0] if len(table_axes) == 1 else "entry"
    factors = merged([*zip(table_axes, table_shape, strict=True)], entry, ("inner", 0))
    labels: list[Any] = []
    output: list[Any] = []
    sizes: dict[Any, Dimension] = {}
    for position, part in enumerate(parts):
        if position == _first_table_axis(parts, tables):
            output += table_axes
        if part is Ellipsis:
            continue
        if part is None:
            output.append(("new", position))
            sizes[output[-1]] = sympy.S.One
            continue
        size = node.shape[len(labels)]
        label, selected = ("axis", position), ("out", position)
        labels.append(label)
        if position in tables:
            table = tuple(map(int, tables[position].flat))
            factors.append((Gather(table, size), (entry, label)))
        elif not isinstance(part, slice):
            place = _position(part, size)
            factors.append((Slice(sympy.S.One, size, place, 1), (selected, label)))
        else:
            start, count, stride = slice_range(part, size)
            is_whole = (start, count, stride) == (0, size, 1)
            output.append(label if is_whole else selected)
            if not is_whole:
                factors.append((Slice(count, size, start, stride), (selected, label)))
    return einsum([(node, labels), *factors], output, sizes=sizes)


def merged(axes: Sequence[tuple[Any, Any]], flat: Any, name: tuple[str, int]) -> list[Any]:
    """Return factors that merge `axes` (label, size), outermost first, into the label `flat`.
    name: of the labels of inner axes."""
    factors: list[Any] = []
    label = flat
    for position, (axis, size) in enumerate(axes[:-1]):
        inner_size = sympy.expand(sympy.Mul(*(length for _, length in axes[position + 1 :])))
        is_last = position == len(axes) - 2
        inner = axes[-1][0] if is_last else (*name, position)
        factors.append((Reshape(sympy.sympify(size), inner_size), (label, axis, inner)))
        label = inner
    return factors


def _entries(index: tuple[object, ...], node: Node) -> list[object]:
    """List the entries of an index, one for each axis, `None` for new axes, and `...` where it
    stands for no axis: it may separate arrays of positions, too."""
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
            parts.extend(unindexed or [part])
            unindexed = []
        else:
            parts.append(part)
    return parts + unindexed


def _tables(parts: Sequence[object], shape: Shape) -> dict[int, np.ndarray]:
    """Return the arrays of positions in an index, broadcast to one shape, by their places."""
    tables: dict[int, np.ndarray] = {}
    axis = 0
    for place, part in enumerate(parts):
        if isinstance(part, (list, np.ndarray)):
            tables[place] = _table(part, shape[axis])
        axis += part is not None and part is not Ellipsis
    try:
        return dict(zip(tables, np.broadcast_arrays(*tables.values()), strict=True))
    except ValueError as error:
        shapes = " and ".join(str(table.shape) for table in tables.values())
        raise ShapeError(f"arrays of positions of shapes {shapes} do not broadcast") from error


def _first_table_axis(parts: Sequence[object], tables: Mapping[int, np.ndarray]) -> int:
    """Return the place in an index at which the result has the axes of `tables`: as in NumPy where
    the first position stands, or in front if a slice, None or ... separates positions."""
    if not tables:
        return -1
    separators = (slice, EllipsisType, NoneType)
    places = [i for i, part in enumerate(parts) if not isinstance(part, separators)]
    return places[0] if places[-1] - places[0] == len(places) - 1 else 0


def _table(part: object, size: Dimension) -> np.ndarray:
    """Return an array of positions, counted from the start."""
    try:
        table = np.asarray(part)
    except ValueError as error:
        raise ShapeError(
            f"index {shown(part)} is ragged: it has to be an array of integers"
        ) from error
    if table.dtype.kind not in "iu":
        raise UnsupportedError(
            f"index {shown(part)} is not an array of integers; multiply by a mask, or use where"
        )
    places = [_position(int(place), size) for place in table.flat]
    if not all(place.is_Integer for place in places):
        raise UnsupportedError(
            f"index {shown(part)}: count positions of an axis of symbolic size {size} from its "
            "start"
        )
    return np.array([*map(int, places)], dtype=int).reshape(table.shape)


def _integer(part: object) -> sympy.Expr:
    """Convert an index or bound: an integer, or arithmetic of dimensions."""
    is_arithmetic = isinstance(part, (int, np.integer, sympy.Expr)) and not isinstance(part, bool)
    value = sympy.sympify(part) if is_arithmetic else None
    if value is None or value.is_Matrix or (value.is_number and not value.is_Integer):
        raise UnsupportedError(
            f"index {shown(part)} of type {type(part).__name__} is not supported; use "
            "integers, slices, None, ... or an array of integers, and where instead of a mask"
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
