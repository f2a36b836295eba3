"""Products and linear algebra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from derivatrix.compiler import arrays, ir

def trace(array: Any) -> Array:
    """The sum of the diagonal."""
    return arrays.trace(asarray(array))


def matmul(left: Any, right: Any) -> Array:
    """left @ right."""
    return arrays.matmul(asarray(left), asarray(right))


def dot(left: Any, right: Any) -> Array:
    """The matrix product of vectors and matrices; scalars multiply."""
    one, two = asarray(left), asarray(right)
    return matmul(one, two) if one.ndim and two.ndim else one * two


def vdot(left: Any, right: Any) -> Array:
    """The sum of the products of all entries of two arrays of one shape."""
    one, two = asarray(left), asarray(right)
    if one.node.shape != two.node.shape:
        raise ShapeError(f"vdot of shapes {shape_text(one.shape)} and {shape_text(two.shape)}")
    return sum(one * two)


def inner(left: Any, right: Any) -> Array:
    """The sum of products over the last axes."""
    return tensordot(left, right, (-1, -1)) if asarray(left).ndim else multiply(left, right)


def outer(left: Any, right: Any) -> Array:
    """The outer product of two vectors."""
    return tensordot(left, right, 0)


def tensordot(left: Any, right: Any, axes: Any = 2) -> Array:
    """The contraction of pairs of axes, as numpy.tensordot."""
    one, two = asarray(left), asarray(right)
    if isinstance(axes, int):
        first = list(range(one.ndim - axes, one.ndim))
        second = list(range(axes))
    else:
        first = list(normalise_axes(axes[0], one.ndim))
        second = list(normalise_axes(axes[1], two.ndim))
    if len(first) != len(second) or len(first) > min(one.ndim, two.ndim):
        raise ShapeError(f"tensordot: axes {axes!r} do not pair")
    left_labels: list[Any] = [("left", i) for i in range(one.ndim)]
    right_labels: list[Any] = [("right", i) for i in range(two.ndim)]
    for i, j in zip(first, second, strict=True):
        if one.node.shape[i] != two.node.shape[j]:
            raise ShapeError(
                f"tensordot: axis {i} of {shape_text(one.shape)} and axis {j} of "
                f"{shape_text(two.shape)} differ"
            )
        right_labels[j] = left_labels[i]
    output = [label for i, label in enumerate(left_labels) if i not in first]
    output += [label for j, label in enumerate(right_labels) if j not in second]
    return Array(ir.einsum([(one.node, left_labels), (two.node, right_labels)], output))


def einsum(subscripts: str, *operands: Any) -> Array:
    """Products in index notation, as numpy.einsum: einsum("ijk,j,k->i", T, x, y)."""
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    parts = [asarray(operand) for operand in operands]
    if len(terms) != len(parts):
        raise ShapeError(f"einsum {subscripts!r}: {len(terms)} terms, {len(parts)} operands")
    if not all(letter.isalpha() for letter in "".join(terms) + output):
        raise UnsupportedError(f"einsum {subscripts!r}: only letters, commas and -> are read")
    letters = "".join(terms)
    if not arrow:
        output = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    sizes: dict[str, Any] = {}
    for term, part in zip(terms, parts, strict=True):
        if len(term) != part.ndim:
            raise ShapeError(f"einsum {subscripts!r}: {term!r} for shape {shape_text(part.shape)}")
        for letter, size in zip(term, part.node.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise ShapeError(
                    f"einsum {subscripts!r}: index {letter} is both {sizes[letter]} and {size}"
                )
    missing = set(output) - set(letters)
    if missing or len(set(output)) != len(output):
        raise ShapeError(f"einsum {subscripts!r}: the output {output!r} is not a choice of inputs")
    factors = [(part.node, term) for term, part in zip(terms, parts, strict=True)]
    return Array(ir.einsum(factors, output))


def inv(array: Any) -> Array:
    """The inverse of a square matrix. LinAlgError where it is singular."""
    return arrays.apply(INVERSE, asarray(array))


def solve(matrix: Any, right: Any) -> Array:
    """inv(matrix) @ right, by factorisation."""
    return inv(matrix) @ asarray(right)


def det(array: Any) -> Array:
    """The determinant."""
    return arrays.apply(DETERMINANT, asarray(array))


def logdet(array: Any) -> Array:
    """log(det(array)); nan where the determinant is negative."""
    return arrays.apply(LOG_DETERMINANT, asarray(array))


def logabsdet(array: Any) -> Array:
    """log(abs(det(array)))."""
    return arrays.apply(LOG_ABSOLUTE_DETERMINANT, asarray(array))


def slogdet(array: Any) -> tuple[Array, Array]:
    """The sign of the determinant and the logarithm of its absolute value."""
    return sign(det(array)), logabsdet(array)


def matrix_power(array: Any, exponent: int) -> Array:
    """A square matrix multiplied by itself, or its inverse by itself for a negative exponent."""
    base = asarray(array)
    if isinstance(exponent, bool) or not isinstance(exponent, (int, sympy.Integer)):
        raise UnsupportedError(f"matrix_power needs an integer exponent, not {exponent!r}")
    if base.ndim < 2 or base.node.shape[-1] != base.node.shape[-2]:
        raise ShapeError(f"matrix_power needs a square matrix, not {shape_text(base.shape)}")
    if exponent == 0:
        return broadcast_to(eye(base.node.shape[-1]), base.node.shape)
    if exponent < 0:
        return matrix_power(inv(base), -exponent)
    if exponent <= 4:
        return multi_dot([base] * int(exponent))
    half = matrix_power(base, exponent // 2)
    return half @ half @ base if exponent % 2 else half @ half


def multi_dot(parts: Sequence[Any]) -> Array:
    """The product of several matrices."""
    result = asarray(parts[0])
    for part in parts[1:]:
        result = result @ asarray(part)
    return result


def solve_sylvester(left: Any, right: Any, constant: Any) -> Array:
    """The X with left @ X + X @ right = constant."""
    return arrays.apply(SYLVESTER, asarray(left), asarray(right), asarray(constant))

__all__ = [
    "det",
    "dot",
    "einsum",
    "inner",
    "inv",
    "logabsdet",
    "logdet",
    "matmul",
    "matrix_power",
    "multi_dot",
    "outer",
    "slogdet",
    "solve",
    "solve_sylvester",
    "tensordot",
    "trace",
    "vdot",
]
