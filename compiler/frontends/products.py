"""Matrix, inner and outer products, and contractions in index notation."""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from derivatrix.compiler.frontends.rearrange import ARRAYS, moveaxis
from derivatrix.compiler.frontends.reductions import sum
from derivatrix.compiler.ir import arrays
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.arrays import Array, apply, asarray
from derivatrix.compiler.ir.broadcasting import normalise_axes
from derivatrix.compiler.ir.dimensions import Dimension, shape_text
from derivatrix.compiler.ir.literals import items
from derivatrix.compiler.ir.messages import disagreement, operand_text
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.operations.skew import SKEW
from derivatrix.runtime.errors import ShapeError, UnsupportedError


def matmul(left: Any, right: Any) -> Array:
    """left @ right."""
    return arrays.matmul(asarray(left), asarray(right))


def dot(left: Any, right: Any) -> Array:
    """The matrix product of vectors and matrices; scalars multiply. Raises UnsupportedError for a
    right operand of more than two axes, where NumPy's `dot` is not `@`."""
    x, y = asarray(left), asarray(right)
    if not x.ndim or not y.ndim:
        return x * y
    if y.ndim > 2:
        raise UnsupportedError(
            f"dot by an array with {y.ndim} axes has no rule; use matmul, tensordot or einsum"
        )
    return matmul(x, y)


def vdot(left: Any, right: Any) -> Array:
    """The sum of the products of all entries of two arrays of one shape."""
    x, y = asarray(left), asarray(right)
    if x.node.shape != y.node.shape:
        raise disagreement("vdot({}, {})", [x.node, y.node], "expected equal shapes")
    return sum(x * y)


def inner(left: Any, right: Any) -> Array:
    """The sum of products over the last axes; scalars multiply."""
    x, y = asarray(left), asarray(right)
    if not x.ndim or not y.ndim:
        return x * y
    if x.node.shape[-1] != y.node.shape[-1]:
        problem = f"expected {x.node.shape[-1]} = {y.node.shape[-1]}"
        raise disagreement("inner({}, {})", [x.node, y.node], problem)
    return tensordot(x, y, (-1, -1))


def outer(left: Any, right: Any) -> Array:
    """The outer product of two vectors."""
    x, y = asarray(left), asarray(right)
    if x.ndim != 1 or y.ndim != 1:
        problem = "expected two vectors; einsum and tensordot multiply arrays of more axes"
        raise disagreement("outer({}, {})", [x.node, y.node], problem)
    return tensordot(x, y, 0)


def cross(left: Any, right: Any, axis: int = -1) -> Array:
    """The cross product of vectors of 3 entries, which lie along `axis`; other axes broadcast."""
    x, y = (moveaxis(part, axis, -1) for part in (left, right))
    if (x.node.shape[-1], y.node.shape[-1]) != (3, 3):
        problem = f"expected 3 entries along axis {axis}"
        raise disagreement("cross({}, {})", [asarray(left).node, asarray(right).node], problem)
    return moveaxis((apply(SKEW, x) @ y[..., None])[..., 0], -1, axis)


def tensordot(left: Any, right: Any, axes: Any = 2) -> Array:
    """The contraction of pairs of axes, as numpy.tensordot."""
    x, y = asarray(left), asarray(right)
    form = "tensordot({}, {})"
    if isinstance(axes, (int, np.integer)):
        left_axes = list(range(x.ndim - axes, x.ndim))
        right_axes = list(range(axes))
    else:
        left_axes = list(normalise_axes(axes[0], x.ndim))
        right_axes = list(normalise_axes(axes[1], y.ndim))
    if len(left_axes) != len(right_axes) or len(left_axes) > min(x.ndim, y.ndim):
        raise disagreement(form, [x.node, y.node], f"axes {shown(axes)} do not pair")
    left_labels: list[Any] = [("left", i) for i in range(x.ndim)]
    right_labels: list[Any] = [("right", i) for i in range(y.ndim)]
    for i, j in zip(left_axes, right_axes, strict=True):
        if x.node.shape[i] != y.node.shape[j]:
            problem = f"axis {i} of the first is contracted with axis {j} of the second"
            raise disagreement(form, [x.node, y.node], problem)
        right_labels[j] = left_labels[i]
    output = [label for i, label in enumerate(left_labels) if i not in left_axes]
    output += [label for j, label in enumerate(right_labels) if j not in right_axes]
    return Array(ir.einsum([(x.node, left_labels), (y.node, right_labels)], output))


def einsum(subscripts: str, *operands: Any, optimize: object = None) -> Array:
    """Products in index notation, as numpy.einsum: einsum("ijk,j,k->i", T, x, y).

    `...` stands for leading axes, which have to agree. `optimize` has no effect: the plan chooses
    the contraction order. Raises ShapeError, UnsupportedError."""
    if not isinstance(subscripts, str):
        raise UnsupportedError(
            'einsum reads its indices from a text, as in einsum("ij,j->i", A, x)'
        )
    parts = [asarray(operand) for operand in operands]
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(parts):
        raise ShapeError(f"einsum {shown(subscripts)}: {len(terms)} terms, {len(parts)} operands")
    if not all(c in string.ascii_letters for c in "".join([*terms, output]).replace("...", "")):
        raise UnsupportedError(
            f"einsum {shown(subscripts)}: only letters, commas, ... and -> are read"
        )
    letters = "".join(terms).replace("...", "")
    if not arrow:
        output = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
        output = f"...{output}" if "..." in inputs else output
    labelled = [_labels(subscripts, term, part) for term, part in zip(terms, parts, strict=True)]
    leading = max((leading_labels for leading_labels, _ in labelled), key=len)
    labels = [part_labels for _, part_labels in labelled]
    _check_sizes(subscripts, labels, parts)
    before, dots, after = output.partition("...")
    output_labels = [*before, *(leading if dots else ()), *after.replace("...", "")]
    input_labels = {label for part_labels in labels for label in part_labels}
    are_distinct = len({*output_labels}) == len(output_labels)
    if not (are_distinct and {*output_labels} <= input_labels):
        raise ShapeError(
            f"einsum {shown(subscripts)}: the output {shown(output)} is not a choice of inputs"
        )
    if leading and not dots:
        raise ShapeError(
            f"einsum {shown(subscripts)}: the output has no ... for the leading axes; sum them by "
            "letters"
        )
    nodes = [part.node for part in parts]
    return Array(ir.einsum(zip(nodes, labels, strict=True), output_labels))


def _labels(subscripts: str, term: str, part: Array) -> tuple[list[Any], list[Any]]:
    """Return the labels of the axes that `...` stands for, and the labels of all axes. The former
    are numbered from the last, since leading axes of different numbers match at the end."""
    before, dots, after = term.partition("...")
    count = part.ndim - len(before) - len(after)
    if count < 0 or (count and not dots) or "..." in after:
        raise ShapeError(
            f"einsum {shown(subscripts)}: {shown(term)} for {operand_text(part.node)} of shape "
            f"{shape_text(part.shape)}"
        )
    leading = [("leading", axis) for axis in reversed(range(count))]
    return leading, [*before, *leading, *after]


def _check_sizes(subscripts: str, labels: Sequence[Sequence[Any]], parts: Sequence[Array]) -> None:
    """Raise ShapeError for a label with two sizes."""
    sizes: dict[Any, tuple[Dimension, str]] = {}
    for part_labels, part in zip(labels, parts, strict=True):
        for axis, (label, size) in enumerate(zip(part_labels, part.node.shape, strict=True)):
            place = f"{size} (axis {axis} of {operand_text(part.node, 'an operand')})"
            first_size, first_place = sizes.setdefault(label, (size, place))
            if first_size != size:
                name = f"index {label}" if isinstance(label, str) else "an axis of ..."
                raise ShapeError(
                    f"einsum {shown(subscripts)}: {name} is both {first_place} and {place}"
                )


def multi_dot(parts: Sequence[Any]) -> Array:
    """The product of several matrices, written from left to right; the plan chooses the order of
    multiplication."""
    operands = [asarray(part) for part in items(parts, ARRAYS)]
    if not operands:
        raise ShapeError("multi_dot: there is nothing to multiply")
    return reduce(matmul, operands)
