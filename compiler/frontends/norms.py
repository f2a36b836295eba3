"""Norms of vectors and matrices, and condition numbers."""

from __future__ import annotations

from numbers import Real
from typing import Any

import sympy

from derivatrix.compiler.frontends.elementwise import abs, sqrt
from derivatrix.compiler.frontends.linear import inv, matrix_power, trace
from derivatrix.compiler.frontends.rearrange import expand_dims, moveaxis
from derivatrix.compiler.frontends.reductions import max, min, sum
from derivatrix.compiler.ir.arrays import Array, apply, asarray
from derivatrix.compiler.ir.broadcasting import Axis, normalise_axes
from derivatrix.compiler.ir.literals import MAX_FLOAT
from derivatrix.compiler.ir.messages import disagreement
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.operations.singular import NUCLEAR, SVDVALS
from derivatrix.runtime.errors import UnsupportedError


def norm(array: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Array:
    """A norm over `axis` (all axes by default): of a vector over one axis, of matrices over two.

    ord: None for the root of the sum of squares, over any axes. Of a vector a number p for the
    p-norm, inf and -inf for the largest and least absolute value. Of a matrix "fro", "nuc" (sum
    of the singular values), 2 and -2 (the largest and least), 1 and -1 (of the columns' sums of
    absolute values), inf and -inf (of the rows').

    The derivative of the 2-norm at zero, where there is none, is taken to be 0. Raises
    UnsupportedError for other orders.
    """
    operand = asarray(array)
    axes = normalise_axes(axis, operand.ndim)
    number = _number(ord)
    if number is None and not (ord is None or isinstance(ord, str)):
        raise _rule_error("norm", ord, len(axes))
    if ord is None or (ord == "fro" and len(axes) == 2):
        return _entries_norm(operand, sympy.Integer(2), axes, keepdims)
    if number is not None and len(axes) == 1:
        return _entries_norm(operand, number, axes, keepdims)
    if len(axes) != 2:
        raise _rule_error("norm", ord, len(axes))
    result = _matrix_norm(moveaxis(operand, axes, (-2, -1)), ord)
    for position in sorted(axes) if keepdims else ():
        result = expand_dims(result, position)
    return result


def vector_norm(array: Any, ord: Any = 2, axis: Axis = None, keepdims: bool = False) -> Array:
    """The p-norm of all entries over `axis` (all axes by default); see `norm` for `ord`."""
    operand = asarray(array)
    axes = normalise_axes(axis, operand.ndim)
    number = _number(ord)
    if number is None:
        raise _rule_error("vector_norm", ord, len(axes))
    return _entries_norm(operand, number, axes, keepdims)


def _number(ord: Any) -> sympy.Expr | None:
    """Convert the order of a norm to a number other than zero; None for other orders."""
    if isinstance(ord, (bool, sympy.Lambda)) or not isinstance(ord, (Real, sympy.Expr)):
        return None
    number = sympy.sympify(ord)
    if not (number.is_number and number.is_extended_real):
        return None
    if number.is_finite and not -MAX_FLOAT <= number <= MAX_FLOAT:
        return None
    number = sympy.nsimplify(number)  # SymPy's 2.0 is neither equal to 2 nor even
    return number if number != 0 else None


def _rule_error(name: str, ord: Any, count: int) -> UnsupportedError:
    return UnsupportedError(f"{name}: ord={shown(ord)} over {count} axes has no rule")


def _entries_norm(
    operand: Array, order: sympy.Expr, axes: tuple[int, ...], keepdims: bool
) -> Array:
    """Compute the p-norm of the entries over the axes."""
    if order is sympy.oo:
        return max(abs(operand), axes, keepdims=keepdims)
    if order is -sympy.oo:
        return min(abs(operand), axes, keepdims=keepdims)
    if order == 2:  # x² = |x|², without a kink
        return sqrt(sum(operand**2, axes, keepdims=keepdims))
    total = sum(abs(operand) ** order, axes, keepdims=keepdims)
    return total if order == 1 else total ** (1 / order)


def _matrix_norm(operand: Array, ord: Any) -> Array:
    """Compute a norm of matrices in the last two axes."""
    if ord == "nuc":
        return apply(NUCLEAR, operand)
    number = _number(ord)
    if number in (2, -2):
        return apply(SVDVALS, operand)[..., 0 if number == 2 else -1]
    if number in (1, -1, sympy.oo, -sympy.oo):
        sums = sum(abs(operand), -2 if number in (1, -1) else -1)
        return max(sums, -1) if number > 0 else min(sums, -1)
    raise _rule_error("norm", ord, 2)


def cdist(left: Any, right: Any, metric: str = "euclidean") -> Array:
    """The distances of all rows of `left` from all rows of `right`, as SciPy's `cdist`.

    metric: "euclidean", "sqeuclidean" (its square) or "cityblock" (the sum of absolute values). The
    derivative of a Euclidean distance that is zero is taken to be 0. Distances are computed from
    differences, right also for rows that are close to each other."""
    x, y = asarray(left), asarray(right)
    if x.ndim != 2 or y.ndim != 2 or x.node.shape[1] != y.node.shape[1]:
        problem = "expected two matrices with as many columns"
        raise disagreement("cdist({}, {})", [x.node, y.node], problem)
    differences = x[:, None] - y
    if metric == "sqeuclidean":
        return sum(differences**2, -1)
    if metric not in ("euclidean", "cityblock"):
        raise UnsupportedError(f"cdist: metric={shown(metric)} has no rule")
    return norm(differences, 2 if metric == "euclidean" else 1, -1)


def schatten_norm(array: Any, p: Any) -> Array:
    """The p-norm of the singular values of a matrix, with leading stacked axes if any: 1 is the
    nuclear norm, 2 Frobenius', inf the spectral norm.

    p: a number of 1 or more, or inf. For even p it is computed from traces of powers of XᵀX, so
    all derivatives are right where singular values are repeated or zero (but not all of them);
    for others see `svdvals`. Raises UnsupportedError.
    """
    operand = asarray(array)
    number = _number(p)
    if number is None or not number >= 1:
        raise UnsupportedError(f"schatten_norm needs a number p >= 1, not {shown(p)}")
    if number == 1:
        return apply(NUCLEAR, operand)
    if number is sympy.oo:
        return apply(SVDVALS, operand)[..., 0]
    if number.is_even:
        if operand.ndim < 2:
            raise disagreement("schatten_norm({})", [operand.node], "expected a matrix")
        rows, columns = operand.node.shape[-2:]
        is_wide = (columns - rows).is_nonnegative
        gram = operand @ operand.mT if is_wide else operand.mT @ operand  # the smaller of the two
        return trace(matrix_power(gram, int(number / 2))) ** (1 / number)
    return sum(apply(SVDVALS, operand) ** number, -1) ** (1 / number)


def cond(array: Any, p: Any = None) -> Array:
    """The condition number of a matrix: the largest singular value over the least, or, for p as
    `ord` of a matrix's `norm`, norm(A, p) norm(inv(A), p)."""
    operand = asarray(array)
    if p in (None, 2, -2):
        values = apply(SVDVALS, operand)
        largest, smallest = values[..., 0], values[..., -1]
        return smallest / largest if p == -2 else largest / smallest
    if p not in ("fro", "nuc") and _number(p) not in (1, -1, sympy.oo, -sympy.oo):
        raise UnsupportedError(f"cond: p={shown(p)} has no rule")
    return norm(operand, p, (-2, -1)) * norm(inv(operand), p, (-2, -1))
