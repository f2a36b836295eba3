"""NumPy's rules for axes: which shapes broadcast, which axis a number means."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy

from derivatrix.compiler.ir.dimensions import Dimension, Shape
from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import ShapeError, UnsupportedError

Axis = int | Sequence[int] | None
"""An axis, several, or all."""

_fresh = itertools.count()


def broadcast_shapes(*shapes: Shape) -> Shape:
    """Broadcast shapes as NumPy does: align axes at the right, stretch a literal 1."""
    return tuple(
        next((size for size in sizes if size != 1), sympy.S.One) for sizes in _aligned_sizes(shapes)
    )


def broadcast_clash(shapes: Sequence[Shape]) -> str:
    """Return two sizes that do not broadcast, as "n against m"; "" if all do."""
    for sizes in reversed(_aligned_sizes(shapes)):
        different = list(dict.fromkeys(size for size in sizes if size != 1))
        if len(different) > 1:
            return f"{different[0]} against {different[1]}"
    return ""


def _aligned_sizes(shapes: Sequence[Shape]) -> list[list[Dimension]]:
    """List, for each axis of the common shape, the sizes that the shapes have there."""
    rank = max((len(shape) for shape in shapes), default=0)
    return [
        [shape[axis - rank] for shape in shapes if len(shape) >= rank - axis]
        for axis in range(rank)
    ]


def axis_labels(shape: Shape, target: Shape) -> tuple[Any, ...]:
    """Return labels that align `shape` at the right of `target`, whose labels are 0, 1, ...; a
    stretched axis of length 1 gets a fresh label."""
    start = len(target) - len(shape)
    return tuple(
        start + axis if size == target[start + axis] else ("stretched", next(_fresh))
        for axis, size in enumerate(shape)
    )


def normalise_axis(axis: int, rank: int) -> int:
    """Convert a possibly negative axis to one of 0 .. rank-1. Raises ShapeError."""
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise UnsupportedError(f"an axis is an integer, not {shown(axis)}")
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {shown(axis)} is out of bounds for an array of {rank} axes")
    return int(axis) % rank


def normalise_axes(axis: Axis, rank: int) -> tuple[int, ...]:
    """Convert one axis, several, or None for all to a tuple. Raises ShapeError."""
    if axis is None:
        return tuple(range(rank))
    if isinstance(axis, Sequence):
        axes = tuple(normalise_axis(part, rank) for part in axis)
        if len(set(axes)) != len(axes):
            raise ShapeError(f"axes {tuple(axis)} name an axis twice")
        return axes
    return (normalise_axis(axis, rank),)
