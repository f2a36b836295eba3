"""Traces, determinants, inverses, linear systems, powers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import sympy

from derivatrix.compiler.frontends.declare import eye
from derivatrix.compiler.frontends.elementwise import sign
from derivatrix.compiler.frontends.products import multi_dot
from derivatrix.compiler.frontends.rearrange import broadcast_to, diagonal, tril, triu
from derivatrix.compiler.frontends.reductions import sum
from derivatrix.compiler.ir import arrays
from derivatrix.compiler.ir.arrays import Array, apply, asarray
from derivatrix.compiler.ir.messages import disagreement, require_square
from derivatrix.compiler.ir.nodes import Leaf
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.ir.structure import DECLARED_FACTS
from derivatrix.compiler.operations.assumption import assumption
from derivatrix.compiler.operations.commuting import is_orthogonal
from derivatrix.compiler.operations.determinant import (
    DETERMINANT,
    LOG_ABSOLUTE_DETERMINANT,
    LOG_DETERMINANT,
)
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.sylvester import SYLVESTER
from derivatrix.runtime.errors import DeclarationError, UnsupportedError

MAX_POWER = 1000
"""Largest integer power that is written as a product of matrices."""

MAX_LOGDET = 1e30
"""Larger than |log(det)| of any regular matrix, in single and double precision."""


def trace(array: Any, offset: int = 0) -> Array:
    """The sum of the diagonal number `offset` of the last two axes."""
    operand = asarray(array)
    return sum(diagonal(operand, offset), -1) if offset else arrays.trace(operand)


def inv(array: Any) -> Array:
    """The inverse of a square matrix. LinAlgError where it is singular."""
    return apply(INVERSE, asarray(array))


def solve(matrix: Any, right: Any) -> Array:
    """inv(matrix) @ right, by factorisation."""
    a, b = asarray(matrix), asarray(right)
    form, operands = "solve({}, {})", [a.node, b.node]
    if a.ndim < 2 or a.node.shape[-1] != a.node.shape[-2]:
        raise disagreement(form, operands, "expected a square matrix first")
    size = b.node.shape[max(b.ndim - 2, 0)] if b.ndim else None
    if a.node.shape[-1] != size:
        raise disagreement(form, operands, f"expected {a.node.shape[-1]} rows in the second")
    return inv(a) @ b


def solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False
) -> Array:
    """The X with triangle @ X = b, where `triangle` is the upper, or `lower`, triangle of `a`.

    trans: 1 or "T" for the transposed triangle. unit_diagonal: whether its diagonal counts as ones.
    LinAlgError where the diagonal has a zero. Other entries of `a` have no effect. If `a` is an
    input, declare it as "lower" or "upper": verification then draws well-conditioned points."""
    matrix = asarray(a)
    require_square("solve_triangular", matrix.node)
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise UnsupportedError(f"solve_triangular: trans={shown(trans)} is neither 0 nor 1")
    offset = 1 if unit_diagonal else 0
    triangle = tril(matrix, -offset) if lower else triu(matrix, offset)
    if unit_diagonal:
        triangle = triangle + eye(matrix.node.shape[-1])
    return solve(triangle if trans in (0, "N") else triangle.mT, b)


def assume(matrix: Any, structure: str) -> Array:
    """`matrix` with the assertion that it is "symmetric", "spd", "lower", "upper", "diagonal" or
    "orthogonal", which its construction does not show: kernels then use Cholesky's factorisation
    instead of LU and read one triangle, and formulas leave out transposes.

    The assertion must hold for all inputs. Calls use it without a check; verification compares with
    the matrix as it is. Raises DeclarationError for another structure, ShapeError for a matrix that
    is not square.
    """
    operand = asarray(matrix)
    if structure not in DECLARED_FACTS:
        names = ", ".join(f'"{name}"' for name in DECLARED_FACTS)
        raise DeclarationError(f"assume: {shown(structure)} is no structure; there are {names}")
    require_square("assume", operand.node)
    return apply(assumption(structure), operand)


def det(array: Any) -> Array:
    """The determinant. For a matrix that is orthogonal by construction it is the constant 1 or -1,
    without rounding.

    Its derivatives are written with the inverse, as in d det(A) = det(A) tr(A⁻¹ dA): they raise
    LinAlgError at a singular matrix, though the derivatives exist there, too.
    """
    operand = asarray(array)
    result = apply(DETERMINANT, operand)
    is_constant = not isinstance(operand.node, Leaf) and is_orthogonal(operand.node)
    return sign(result) if is_constant else result


def logdet(array: Any) -> Array:
    """log(det(array)); nan where the determinant is negative."""
    return apply(LOG_DETERMINANT, asarray(array))


def logabsdet(array: Any) -> Array:
    """log(abs(det(array)))."""
    return apply(LOG_ABSOLUTE_DETERMINANT, asarray(array))


class SlogdetResult(NamedTuple):
    """The sign of a determinant and the logarithm of its absolute value."""

    sign: Array
    logabsdet: Array


def slogdet(array: Any) -> SlogdetResult:
    """The sign of the determinant and the logarithm of its absolute value, right also where the
    determinant itself overflows or underflows."""
    # logdet is nan where the determinant is negative: comparisons with it are false there, and
    # derivatives of the constants 1, -1 and 0 are zero
    absolute, signed = logabsdet(array), logdet(array)
    is_regular = absolute > -MAX_LOGDET
    choice = arrays.where(signed >= absolute, 1, arrays.where(is_regular, -1, absolute))
    return SlogdetResult(sign(arrays.where(absolute < -MAX_LOGDET, 0, choice)), absolute)


def matrix_power(array: Any, exponent: int) -> Array:
    """A square matrix multiplied by itself, or its inverse by itself for a negative exponent."""
    base = asarray(array)
    if isinstance(exponent, bool) or not isinstance(exponent, (int, np.integer, sympy.Integer)):
        raise UnsupportedError(f"matrix_power needs an integer exponent, not {shown(exponent)}")
    if abs(exponent) > MAX_POWER:
        raise UnsupportedError(
            f"matrix_power: the exponent {shown(exponent)} is beyond {MAX_POWER}; a larger power "
            "is expm(exponent * logm(A))"
        )
    require_square("matrix_power", base.node)
    if exponent == 0:
        return broadcast_to(eye(base.node.shape[-1]), base.node.shape)
    if exponent < 0:
        return matrix_power(inv(base), -exponent)
    if exponent <= 4:
        return multi_dot([base] * int(exponent))
    # by squares: 2 log2(exponent) products at most
    half = matrix_power(base, exponent // 2)
    return half @ half @ base if exponent % 2 else half @ half


def solve_sylvester(left: Any, right: Any, constant: Any) -> Array:
    """The X with left @ X + X @ right = constant."""
    return apply(SYLVESTER, asarray(left), asarray(right), asarray(constant))
