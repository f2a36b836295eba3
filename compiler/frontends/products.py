"""Products of arrays: matrix, inner, outer, and any by their indices."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from derivatrix.compiler.frontends.reductions import sum
from derivatrix.compiler.ir import arrays
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.arrays import Array, asarray
from derivatrix.compiler.ir.broadcasting import normalise_axes
from derivatrix.compiler.ir.dimensions import Dimension, shape_text
from derivatrix.compiler.ir.messages import disagreement, operand_text
from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import ShapeError, UnsupportedError


def matmul(left: Any, right: Any) -> Array:
    """left @ right."""
    return arrays.matmul(asarray(left), asarray(right))


def dot(left: Any, right: Any) -> Array:
    """The matrix product of vectors and matrices; scalars multiply. Raises UnsupportedError where
    NumPy's means something else than `@`: for a right operand of more than two axes."""
    one, two = asarray(left), asarray(right)
    if not one.ndim or not two.ndim:
        return one * two
    if two.ndim > 2:
        raise UnsupportedError(
            f"dot by an array with {two.ndim} axes has no rule; use matmul, tensordot or einsum"
        )
    return matmul(one, two)


def vdot(left: Any, right: Any) -> Array:
    """The sum of the products of all entries of two arrays of one shape."""
    one, two = asarray(left), asarray(right)
    if one.node.shape != two.node.shape:
        raise disagreement("vdot({}, {})", [one.node, two.node], "expected equal shapes")
    return sum(one * two)


def inner(left: Any, right: Any) -> Array:
    """The sum of products over the last axes; scalars multiply."""
    one, two = asarray(left), asarray(right)
    if not one.ndim or not two.ndim:
        return one * two
    if one.node.shape[-1] != two.node.shape[-1]:
        problem = f"expected {one.node.shape[-1]} = {two.node.shape[-1]}"
        raise disagreement("inner({}, {})", [one.node, two.node], problem)
    return tensordot(one, two, (-1, -1))


def outer(left: Any, right: Any) -> Array:
    """The outer product of two vectors."""
    one, two = asarray(left), asarray(right)
    if one.ndim != 1 or two.ndim != 1:
        problem = "expected two vectors; einsum and tensordot multiply arrays of more axes"
        raise disagreement("outer({}, {})", [one.node, two.node], problem)
    return tensordot(one, two, 0)


def tensordot(left: Any, right: Any, axes: Any = 2) -> Array:
    """The contraction of pairs of axes, as numpy.tensordot."""
    one, two = asarray(left), asarray(right)
    form = "tensordot({}, {})"
    if isinstance(axes, (int, np.integer)):
        first = list(range(one.ndim - axes, one.ndim))
        second = list(range(axes))
    else:
        first = list(normalise_axes(axes[0], one.ndim))
        second = list(normalise_axes(axes[1], two.ndim))
    if len(first) != len(second) or len(first) > min(one.ndim, two.ndim):
        raise disagreement(form, [one.node, two.node], f"axes {shown(axes)} do not pair")
    left_labels: list[Any] = [("left", i) for i in range(one.ndim)]
    right_labels: list[Any] = [("right", i) for i in range(two.ndim)]
    for i, j in zip(first, second, strict=True):
        if one.node.shape[i] != two.node.shape[j]:
            problem = f"axis {i} of the first is contracted with axis {j} of the second"
            raise disagreement(form, [one.node, two.node], problem)
        right_labels[j] = left_labels[i]
    output = [label for i, label in enumerate(left_labels) if i not in first]
    output += [label for j, label in enumerate(right_labels) if j not in second]
    return Array(ir.einsum([(one.node, left_labels), (two.node, right_labels)], output))


def einsum(subscripts: str, *operands: Any, optimize: object = None) -> Array:
    """Products in index notation, as numpy.einsum: einsum("ijk,j,k->i", T, x, y).

    `...` stands for leading axes, which have to agree. `optimize` is taken as NumPy's and has no
    effect: the plan chooses the order. Raises ShapeError, UnsupportedError.
    """
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
    leading = max((labels for labels, _ in labelled), key=len)
    _check_sizes(subscripts, [own for _, own in labelled], parts)
    before, dots, after = output.partition("...")
    chosen = [*before, *(leading if dots else ()), *after.replace("...", "")]
    if set(chosen) - {label for _, own in labelled for label in own} or len(set(chosen)) != len(
        chosen
    ):
        raise ShapeError(
            f"einsum {shown(subscripts)}: the output {shown(output)} is not a choice of inputs"
        )
    factors = [(part.node, own) for part, (_, own) in zip(parts, labelled, strict=True)]
    return Array(ir.einsum(factors, chosen))


def _labels(subscripts: str, term: str, part: Array) -> tuple[list[Any], list[Any]]:
    """The labels of the axes that `...` stands for, counted from the last, and of all axes."""
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
    """Each label has one size."""
    known: dict[Any, tuple[Dimension, str]] = {}
    for own, part in zip(labels, parts, strict=True):
        for axis, (label, size) in enumerate(zip(own, part.node.shape, strict=True)):
            place = f"{size} (axis {axis} of {operand_text(part.node, 'an operand')})"
            other, text = known.setdefault(label, (size, place))
            if other != size:
                name = f"index {label}" if isinstance(label, str) else "an axis of ..."
                raise ShapeError(f"einsum {shown(subscripts)}: {name} is both {text} and {place}")


def multi_dot(parts: Sequence[Any]) -> Array:
    """The product of several matrices."""
    if not parts:
        raise ShapeError("multi_dot: there is nothing to multiply")
    result = asarray(parts[0])
    for part in parts[1:]:
        result = result @ asarray(part)
    return result
