"""Symbolic inputs, and arrays given by numbers."""

from __future__ import annotations

from typing import Any

import sympy

from derivatrix.compiler.ir import arrays, dimensions
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.arrays import Array, asarray
from derivatrix.compiler.ir.dimensions import shape_text
from derivatrix.compiler.ir.identifiers import require_identifier
from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import DeclarationError, ShapeError

SQUARE = ("symmetric", "spd", "lower", "upper", "diagonal", "orthogonal", "invertible")
"""Structures that only square matrices have."""
MAX_AXES = 32
"""The limit of NumPy 1 for the axes of an array; that of NumPy 2 is higher."""


def tensor(name: str, *shape: Any, structure: str = "general") -> Array:
    """An input of any rank, as in tensor("T", n, n, m).

    structure: "general", "symmetric", "spd", "lower", "upper", "diagonal", "orthogonal", or a
    domain: "positive", "nonneg", "simplex" (positive numbers that sum to one along the last
    axis), "invertible". Raises DeclarationError.
    """
    require_identifier(name, "an input")
    if shape and isinstance(shape[-1], str) and shape[-1] in ir.STRUCTURES:
        structure, shape = shape[-1], shape[:-1]
    if not isinstance(structure, str) or structure not in ir.STRUCTURES:
        raise DeclarationError(
            f"{name}: unknown structure {shown(structure)}; choose from {', '.join(ir.STRUCTURES)}"
        )
    axes = dimensions.as_shape(shape, f"{name}: shape")
    if len(axes) > MAX_AXES:
        raise DeclarationError(f"{name}: {len(axes)} axes, an array has at most {MAX_AXES}")
    if sympy.S.Zero in axes:
        raise DeclarationError(
            f"{name}: shape {shape_text(axes)} is empty; literal sizes are at least 1"
        )
    if structure in SQUARE and (len(axes) < 2 or axes[-1] != axes[-2]):
        raise ShapeError(f"{name}: {structure} needs a square matrix, not {shape_text(axes)}")
    if structure == "simplex" and not axes:
        raise ShapeError(f"{name}: simplex needs an axis, not a scalar")
    return Array(ir.Leaf(name, axes, structure))


def matrix(name: str, rows: Any, columns: Any, structure: str = "general") -> Array:
    """An input of shape (rows, columns); see `tensor` for structures."""
    return tensor(name, rows, columns, structure=structure)


def vector(name: str, size: Any, structure: str = "general") -> Array:
    """An input of shape (size,)."""
    return tensor(name, size, structure=structure)


def scalar(name: str, structure: str = "general") -> Array:
    """An input of shape ()."""
    return tensor(name, structure=structure)


def constant(value: Any) -> Array:
    """A literal array."""
    return asarray(value)


def eye(size: Any) -> Array:
    """The identity matrix of shape (size, size)."""
    return Array(ir.Delta(dimensions.dimension(size, "eye")))


identity = eye


def full(shape: Any, value: Any) -> Array:
    """An array of one number."""
    return arrays.broadcast_to(asarray(value), dimensions.as_shape((shape,)))


def ones(*shape: Any) -> Array:
    """An array of ones; ones(n, m) or ones((n, m))."""
    return Array(ir.full(1, dimensions.as_shape(shape)))


def zeros(*shape: Any) -> Array:
    """An array of zeros; zeros(n, m) or zeros((n, m))."""
    return Array(ir.zeros(dimensions.as_shape(shape)))


def full_like(array: Any, value: Any) -> Array:
    """One number in the shape of `array`."""
    return full(asarray(array).shape, value)


def ones_like(array: Any) -> Array:
    """Ones of the shape of `array`."""
    return ones(asarray(array).shape)


def zeros_like(array: Any) -> Array:
    """Zeros of the shape of `array`."""
    return zeros(asarray(array).shape)
