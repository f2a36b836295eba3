"""Reciprocals of differences and sums of the entries of a vector.

Derivatives of eigenvectors and singular vectors are written with them. Where a difference or sum is
zero up to rounding there is no such derivative, and the entry is nan."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import sympy

from derivatrix.compiler.ir.arrays import Array, apply, multiply
from derivatrix.compiler.ir.nodes import einsum, zeros
from derivatrix.compiler.ir.operation import Operation, Point, register


def _pairs(vector: Array, sign: int) -> Array:
    """The matrix x[j] + sign x[i]."""
    size = vector.node.shape[0]
    sizes = {"i": size, "j": size}
    columns = Array(einsum([(vector.node, "j")], "ij", sizes=sizes))
    rows = Array(einsum([(vector.node, "i")], "ij", sizes=sizes))
    return columns + rows if sign > 0 else columns - rows


def _differential(sign: int) -> Callable[[Point], tuple[Array, ...]]:
    """d (1/g) = -dg / g²."""

    def differential(at: Point) -> tuple[Array, ...]:
        squared = multiply(at.result, at.result)
        return (-multiply(squared, _pairs(at.tangents[0], sign)),)

    return differential


def _level(x: np.ndarray) -> np.ndarray:
    largest = np.abs(x).max(-1, initial=0.0)
    # eigenvalues and singular values have errors of some n eps times the largest
    return np.asarray(10 * x.shape[-1] * np.finfo(x.dtype).eps * largest)


def _value(sign: int) -> Callable[..., tuple[np.ndarray, ...]]:
    def value(arguments: tuple[np.ndarray, ...], parameters: object) -> tuple[np.ndarray, ...]:
        x = arguments[0]
        size = x.shape[-1]
        pairs = x[..., None, :] + sign * x[..., :, None]
        regular = np.abs(pairs) > _level(x)[..., None, None]
        with np.errstate(divide="ignore"):
            result = np.where(regular, 1 / pairs, np.nan)
        if sign < 0:
            result[..., np.arange(size), np.arange(size)] = 0
        return (result,)

    return value


LEVEL = "10 * x.shape[-1] * np.finfo(x.dtype).eps * np.max(np.abs(x), -1, initial=0)"
"""Text of the size below which a difference or sum of entries of x may be all rounding."""


def _text(pairs: str) -> str:
    """The text of 1/g for an expression g of x[j] and x[i], nan where g may be all rounding."""
    level = f"np.asarray({LEVEL})[..., None, None]"
    return f"(lambda g: 1 / np.where(np.abs(g) > {level}, g, np.nan))({pairs})"


GAPS = register(
    Operation(
        name="reciprocal_gaps",
        ranks=(1,),
        shapes=lambda cores, parameters: ((cores[0][0], cores[0][0]),),
        value=_value(-1),
        differential=_differential(-1),
        numpy=lambda arguments, *_: (
            "(lambda x: np.where(np.eye(x.shape[-1]), 0, "
            f"{_text('x[..., None, :] - x[..., :, None]')}))({arguments[0]})"
        ),
        unicode="recipgaps({0})",
        latex=r"\operatorname{{recipgaps}}({0})",
        kernel="gaps.reciprocal_gaps",
        description="""The matrix with entries 1/(x[j] - x[i]), zero on the diagonal.

x: a vector, with leading stacked axes if any. An entry is nan where x[i] and x[j] are equal up to
rounding.""",
    )
)

SUMS = register(
    Operation(
        name="reciprocal_sums",
        ranks=(1,),
        shapes=lambda cores, parameters: ((cores[0][0], cores[0][0]),),
        value=_value(1),
        differential=_differential(1),
        numpy=lambda arguments, *_: (
            f"(lambda x: {_text('x[..., None, :] + x[..., :, None]')})({arguments[0]})"
        ),
        unicode="recipsums({0})",
        latex=r"\operatorname{{recipsums}}({0})",
        kernel="gaps.reciprocal_sums",
        facts=lambda arguments, output: frozenset({"symmetric"}),
        description="""The matrix with entries 1/(x[i] + x[j]).

x: a vector, with leading stacked axes if any. An entry is nan where x[i] + x[j] is zero up to
rounding.""",
    )
)


ROUNDING_LEVEL = register(
    Operation(
        name="rounding_level",
        ranks=(1,),
        shapes=lambda cores, parameters: ((),),
        value=lambda arguments, parameters: (_level(arguments[0]),),
        differential=lambda at: (Array(zeros(())),),
        numpy=lambda arguments, *_: f"(lambda x: {LEVEL})({arguments[0]})",
        unicode="level({0})",
        latex=r"\operatorname{{level}}({0})",
        kernel="gaps.rounding_levels",
        description="""The size below which a difference or sum of entries may be all rounding.

x: a vector, with leading stacked axes if any. It counts as constant.""",
    )
)


def over_gaps(vector: Array, matrix: Array) -> Array:
    """Divide each entry by x[j] - x[i]; the diagonal is zero."""
    return multiply(apply(GAPS, vector), matrix)


def over_sums(vector: Array, matrix: Array) -> Array:
    """Divide each entry by x[i] + x[j]."""
    return multiply(apply(SUMS, vector), matrix)


def reciprocals(vector: Array) -> Array:
    """Return the entries 1/x[i]; nan where x[i] is zero up to rounding."""
    sums = apply(SUMS, vector)
    return Array(einsum([(sums.node, "ii")], "i", sympy.Integer(2)))
