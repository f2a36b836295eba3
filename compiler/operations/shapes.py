"""Checks of shapes for records of operations."""

from collections.abc import Sequence

from derivatrix.compiler.ir.dimensions import Dimension, Shape, shape_text
from derivatrix.runtime.errors import ShapeError


def square(name: str, shape: Shape) -> Shape:
    """Return `shape`. Raises ShapeError unless it is that of a square matrix."""
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(f"{name} needs a square matrix, not shape {shape_text(shape)}")
    return shape


def same(name: str, shapes: Sequence[Shape]) -> Shape:
    """Return the common shape. Raises ShapeError if there are several."""
    if len(set(shapes)) != 1:
        texts = " and ".join(shape_text(shape) for shape in shapes)
        raise ShapeError(f"{name} needs equal shapes, not {texts}")
    return shapes[0]


def an_entry(cores: Sequence[Shape]) -> tuple[Dimension, ...]:
    """Require a vector to have an entry: else there is no largest, and no softmax."""
    return (cores[0][0] - 1,)
