"""Merged, split and gathered axes: reshape, vec, vech, kron, take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy

from derivatrix.compiler.ir import dimensions
from derivatrix.compiler.ir.arrays import Array, apply, asarray, is_condition, transpose
from derivatrix.compiler.ir.broadcasting import normalise_axis
from derivatrix.compiler.ir.dimensions import Shape, shape_text
from derivatrix.compiler.ir.indexing import merged
from derivatrix.compiler.ir.messages import operand_text
from derivatrix.compiler.ir.nodes import Delta, Reshape, Vech, einsum
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.operations.gathers import ROWS_AT
from derivatrix.runtime.errors import ShapeError, UnsupportedError

Label = tuple[str, int]


def reshape(array: Any, shape: Any, order: str = "C") -> Array:
    """An array of another shape with the entries of `array`; one length may be -1.

    order: "C", in which the last index runs fastest, or "F", in which the first one does. Raises
    ShapeError unless the sizes agree as polynomials in the dimensions, UnsupportedError for "A" and
    "K", orders in memory, which symbolic arrays do not have.
    """
    operand = asarray(array)
    parts = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    if order not in ("C", "F"):
        raise UnsupportedError(
            f"reshape: order={shown(order)} has no rule; choose 'C' (the last index runs fastest) "
            "or 'F' (the first one does)"
        )
    if order == "F":
        return reshape(operand.T, parts[::-1]).T
    parts = [part if _is_remaining(part) else dimensions.dimension(part, "shape") for part in parts]
    target = _target(operand.node.shape, parts)
    factors: list[Any] = []
    old: list[Label] = [("old", axis) for axis in range(operand.ndim)]
    new: list[Label] = [("new", axis) for axis in range(len(target))]
    groups = _groups(operand.node.shape, target)
    for number, (old_axes, new_axes) in enumerate(groups):
        flat: Label = ("flat", number)
        if len(old_axes) == len(new_axes) == 1:
            old[old_axes[0]] = new[new_axes[0]]
            continue
        if len(old_axes) == 1:
            flat = old[old_axes[0]]
        elif len(new_axes) == 1:
            flat = new[new_axes[0]]
        factors += merged([(old[a], operand.node.shape[a]) for a in old_axes], flat, ("o", number))
        factors += merged([(new[a], target[a]) for a in new_axes], flat, ("n", number))
    sizes = dict(zip(new, target, strict=True))
    return Array(einsum([(operand.node, old), *factors], new, sizes=sizes))


def _is_remaining(part: object) -> bool:
    """Check whether a length is -1, which stands for the one that the other lengths leave."""
    return isinstance(part, (int, np.integer, sympy.Integer)) and part == -1


def _target(shape: Shape, parts: Sequence[Any]) -> Shape:
    """Replace a length of -1 by the one that the others leave. Raises ShapeError unless both
    shapes have as many entries."""
    total = sympy.expand(sympy.Mul(*shape))
    unknown = [position for position, part in enumerate(parts) if _is_remaining(part)]
    sizes = [sympy.S.One if _is_remaining(part) else part for part in parts]
    text = shape_text(tuple(sympy.sympify(part) for part in parts))
    if len(unknown) == 1:
        sizes[unknown[0]] = sympy.expand(sympy.cancel(total / sympy.Mul(*sizes)))
    are_integers = all(size.is_integer is not False for size in sizes)
    if len(unknown) > 1 or not are_integers or sympy.expand(sympy.Mul(*sizes) - total) != 0:
        raise ShapeError(f"cannot reshape {shape_text(shape)} into {text}")
    return tuple(sizes)


def _groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Pair the shortest runs of axes with equal products of lengths, in two shapes of equal
    size."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        old_count, new_count = _shortest(old[i:], new[j:])
        groups.append((list(range(i, i + old_count)), list(range(j, j + new_count))))
        i, j = i + old_count, j + new_count
    return groups


def _shortest(old: Shape, new: Shape) -> tuple[int, int]:
    """Return the numbers of leading axes of both shapes in the shortest run of equal size."""
    # all pairs of numbers are tried: of two products of symbols, none is the smaller one
    pairs = [(a, b) for a in range(len(old) + 1) for b in range(len(new) + 1) if a + b]
    for a, b in sorted(pairs, key=lambda pair: (sum(pair), pair)):
        remaining = sympy.Mul(*old[a:]) - sympy.Mul(*new[b:])
        is_equal = sympy.expand(sympy.Mul(*old[:a]) - sympy.Mul(*new[:b])) == 0
        if is_equal and sympy.expand(remaining) == 0:
            return a, b
    return len(old), len(new)


def ravel(array: Any, order: str = "C") -> Array:
    """All entries as a vector, in the order of `reshape`."""
    return reshape(array, -1, order)


def vec(array: Any) -> Array:
    """The columns of a matrix (m, n) one below the other: shape (m*n,)."""
    operand = _require_matrix("vec", array)
    rows, columns = operand.node.shape
    merge = (Reshape(columns, rows), ("k", "j", "i"))
    return Array(einsum([(operand.node, ("i", "j")), merge], ("k",)))


def unvec(array: Any, rows: Any, columns: Any) -> Array:
    """The matrix (rows, columns) whose `vec` a vector is."""
    return reshape(array, (columns, rows)).T


def vech(array: Any) -> Array:
    """The lower triangle of a matrix (n, n), row by row: shape (n*(n+1)/2,)."""
    operand = _require_matrix("vech", array)
    rows, columns = operand.node.shape
    if rows != columns:
        raise ShapeError(f"vech needs a square matrix, not shape {shape_text(operand.node.shape)}")
    pack = (Vech(rows), ("k", "i", "j"))
    return Array(einsum([(operand.node, ("i", "j")), pack], ("k",)))


def unvech(array: Any, size: Any) -> Array:
    """The symmetric matrix (size, size) whose `vech` a vector is."""
    operand = asarray(array)
    count = dimensions.dimension(size, "size")
    pack = Vech(count)
    if operand.node.shape != pack.shape[:1]:
        raise ShapeError(
            f"unvech to {count} rows needs a vector of shape {shape_text(pack.shape[:1])}, "
            f"not {shape_text(operand.node.shape)}"
        )
    lower = Array(einsum([(operand.node, ("k",)), (pack, ("k", "i", "j"))], ("i", "j")))
    diagonal = Array(einsum([(lower.node, ("i", "j")), (Delta(count), ("i", "j"))], ("i", "j")))
    return lower + lower.T - diagonal


def _require_matrix(name: str, array: Any) -> Array:
    operand = asarray(array)
    if operand.ndim != 2:
        raise ShapeError(f"{name} needs a matrix, not shape {shape_text(operand.node.shape)}")
    return operand


def kron(left: Any, right: Any) -> Array:
    """The Kronecker product; axis by axis, as NumPy's `kron`."""
    a, b = asarray(left), asarray(right)
    rank = max(a.ndim, b.ndim)
    factors: list[Any] = []
    output: list[Label] = [("k", axis) for axis in range(rank)]
    labels: dict[str, list[Label]] = {"a": [], "b": []}
    for axis in range(rank):
        axes = {"a": axis - (rank - a.ndim), "b": axis - (rank - b.ndim)}
        if axes["a"] < 0 or axes["b"] < 0:
            labels["b" if axes["a"] < 0 else "a"].append(output[axis])
            continue
        merge = Reshape(a.node.shape[axes["a"]], b.node.shape[axes["b"]])
        factors.append((merge, (output[axis], ("a", axis), ("b", axis))))
        labels["a"].append(("a", axis))
        labels["b"].append(("b", axis))
    return Array(einsum([(a.node, labels["a"]), (b.node, labels["b"]), *factors], output))


def take(array: Any, indices: Any, axis: int | None = None) -> Array:
    """The entries at positions along an axis (of the raveled array for None), as NumPy's `take`.

    indices: integers, of which negative ones count from the end of a literal axis; or a symbolic
    array, whose numbers are rounded down and taken modulo the length of the axis, as with NumPy's
    mode="wrap". Derivatives by it are zero."""
    operand = ravel(array) if axis is None else asarray(array)
    place = normalise_axis(axis or 0, operand.ndim)
    if isinstance(indices, Array):
        return _at_symbolic_positions(operand, indices, place)
    table = np.asarray(indices)
    if table.dtype.kind not in "iu":
        raise ShapeError(f"take needs an array of integers, not {table.dtype}")
    return operand[(*[slice(None)] * place, table)]


def _at_symbolic_positions(operand: Array, positions: Array, place: int) -> Array:
    """Gather the entries at positions that are data, along the axis `place`. All other axes are
    merged: then these entries are rows of a matrix."""
    if is_condition(positions):
        raise UnsupportedError(
            f"index {operand_text(positions.node)} is a condition, and how many entries it selects "
            "depends on data; use where(condition, x, 0), or multiply by it"
        )
    other_axes = [axis for axis in range(operand.ndim) if axis != place]
    sizes = [operand.node.shape[axis] for axis in other_axes]
    matrix = reshape(
        transpose(operand, [place, *other_axes]), (operand.shape[place], sympy.Mul(*sizes))
    )
    rows = apply(ROWS_AT, matrix, ravel(positions))
    before = [positions.ndim + axis for axis in range(place)]
    after = [positions.ndim + axis for axis in range(place, len(other_axes))]
    order = [*before, *range(positions.ndim), *after]
    return transpose(reshape(rows, (*positions.node.shape, *sizes)), order)
