"""Operations on small matrices written out entry by entry, for matrices whose sizes are numbers.

Arrays are NumPy arrays of objects that have Python's arithmetic; an `Algebra` has their other
functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np

Entries = np.ndarray
Facts = frozenset[str]
Arguments = Sequence[Entries]
ArgumentFacts = Sequence[Facts]
Outputs = tuple[Entries, ...]
Places = tuple[int, ...]


class Algebra(Protocol):
    """The operations on entries, apart from arithmetic."""

    def number(self, value: float) -> Any: ...
    def sqrt(self, x: Any) -> Any: ...
    def exp(self, x: Any) -> Any: ...
    def log(self, x: Any) -> Any: ...
    def absolute(self, x: Any) -> Any: ...
    def maximum(self, x: Any, y: Any) -> Any: ...
    def greater(self, x: Any, y: Any) -> Any: ...
    def choose(self, condition: Any, x: Any, y: Any) -> Any: ...
    def require(self, kind: str, x: Any) -> None:
        """Declare that the result is right only where x is "positive", or "nonzero"."""


Unrolled = Callable[[Algebra, Arguments, ArgumentFacts], Outputs]
"""(algebra, the arguments without stacked axes, facts of each) -> the outputs."""


def _zeros(algebra: Algebra, shape: tuple[int, ...]) -> Entries:
    return np.full(shape, algebra.number(0), dtype=object)


def lower_factor(algebra: Algebra, a: Entries) -> Entries:
    """L with L L' = A, from the lower triangle of A."""
    n = len(a)
    lower = _zeros(algebra, a.shape)
    for j in range(n):
        pivot = a[j, j]
        for k in range(j):
            pivot = pivot - lower[j, k] * lower[j, k]
        algebra.require("positive", pivot)
        lower[j, j] = algebra.sqrt(pivot)
        for i in range(j + 1, n):
            entry = a[i, j]
            for k in range(j):
                entry = entry - lower[i, k] * lower[j, k]
            lower[i, j] = entry / lower[j, j]
    return lower


def lower_inverse(algebra: Algebra, lower: Entries) -> Entries:
    """The inverse of a lower triangular matrix, by substitution."""
    n = len(lower)
    inverse = _zeros(algebra, lower.shape)
    for i in range(n):
        reciprocal = algebra.number(1) / lower[i, i]
        for j in range(i):
            entry = lower[i, j] * inverse[j, j]
            for k in range(j + 1, i):
                entry = entry + lower[i, k] * inverse[k, j]
            inverse[i, j] = -(entry * reciprocal)
        inverse[i, i] = reciprocal
    return inverse


def eliminate(algebra: Algebra, a: Entries) -> tuple[Entries, Any]:
    """Make the first columns of the rows of (A, anything) upper triangular, by elimination with
    partial pivoting. Returns the rows and the sign of the exchanges. Comparisons choose entries:
    kernels have no branches here."""
    n = len(a)
    rows = a.copy()
    sign = algebra.number(1)
    for k in range(n):
        for i in range(k + 1, n):
            larger = algebra.greater(algebra.absolute(rows[i, k]), algebra.absolute(rows[k, k]))
            for j in range(k, rows.shape[1]):
                above, below = rows[k, j], rows[i, j]
                rows[k, j] = algebra.choose(larger, below, above)
                rows[i, j] = algebra.choose(larger, above, below)
            sign = algebra.choose(larger, -sign, sign)
        regular = algebra.greater(algebra.absolute(rows[k, k]), algebra.number(0))
        for i in range(k + 1, n):
            quotient = rows[i, k] / rows[k, k]
            factor = algebra.choose(regular, quotient, algebra.number(0))
            for j in range(k + 1, rows.shape[1]):
                rows[i, j] = rows[i, j] - factor * rows[k, j]
    return rows, sign


def inverse(algebra: Algebra, arguments: Arguments, facts: ArgumentFacts) -> Outputs:
    (a,), (structure,) = arguments, facts
    n = len(a)
    if "lower" in structure or "upper" in structure:
        for i in range(n):
            algebra.require("nonzero", a[i, i])
        if "lower" in structure:
            return (lower_inverse(algebra, a),)
        return (lower_inverse(algebra, a.T).T,)
    if "spd" in structure:
        half = lower_inverse(algebra, lower_factor(algebra, a))
        result = _zeros(algebra, a.shape)
        for i in range(n):
            for j in range(i + 1):
                entry = half[i, i] * half[i, j]
                for k in range(i + 1, n):
                    entry = entry + half[k, i] * half[k, j]
                result[i, j] = result[j, i] = entry
        return (result,)
    identity = _zeros(algebra, a.shape)
    for i in range(n):
        identity[i, i] = algebra.number(1)
    rows, _ = eliminate(algebra, np.concatenate([a, identity], axis=1))
    for i in range(n):
        algebra.require("nonzero", rows[i, i])
    for i in reversed(range(n)):
        for j in range(n, 2 * n):
            entry = rows[i, j]
            for k in range(i + 1, n):
                entry = entry - rows[i, k] * rows[k, j]
            rows[i, j] = entry / rows[i, i]
    return (rows[:, n:],)


def _pivots(algebra: Algebra, a: Entries, structure: Facts) -> tuple[list[Any], Any]:
    """Return numbers whose product is the determinant up to its sign, and the sign."""
    if "lower" in structure or "upper" in structure:
        return list(np.diagonal(a)), algebra.number(1)
    if "spd" in structure:
        return list(np.diagonal(lower_factor(algebra, a))) * 2, algebra.number(1)
    rows, sign = eliminate(algebra, a)
    return list(np.diagonal(rows)), sign


def determinant(algebra: Algebra, arguments: Arguments, facts: ArgumentFacts) -> Outputs:
    pivots, result = _pivots(algebra, arguments[0], facts[0])
    for pivot in pivots:
        result = result * pivot
    return (np.array(result, dtype=object),)


def _minors(algebra: Algebra, a: Entries) -> Callable[[Places, Places], Any]:
    """Return a function that expands the minor of given rows and columns by its first row."""

    @cache
    def minor(rows: Places, columns: Places) -> Any:
        if not rows:
            return algebra.number(1)
        total = algebra.number(0)
        for position, column in enumerate(columns):
            remaining = columns[:position] + columns[position + 1 :]
            term = (
                a[rows[0], column] * minor(rows[1:], remaining) if remaining else a[rows[0], column]
            )
            total = total - term if position % 2 else total + term
        return total

    return minor


def adjugate(algebra: Algebra, arguments: Arguments, facts: ArgumentFacts) -> Outputs:
    """Compute the transposed cofactors."""
    (a,) = arguments
    minor, places = _minors(algebra, a), range(len(a))
    result = _zeros(algebra, a.shape)
    for i, j in np.ndindex(a.shape):
        cofactor = minor(_without(places, i), _without(places, j))
        result[j, i] = -cofactor if (i + j) % 2 else cofactor
    return (result,)


def adjugate_jacobian(algebra: Algebra, arguments: Arguments, facts: ArgumentFacts) -> Outputs:
    """Compute the cofactors of cofactors."""
    (a,) = arguments
    minor, places = _minors(algebra, a), range(len(a))
    result = _zeros(algebra, a.shape * 2)
    for j, i, k, m in np.ndindex(result.shape):
        if k != i and m != j:
            cofactor = minor(_without(places, i, k), _without(places, j, m))
            odd = (i + j + k + m + (k > i) + (m > j)) % 2
            result[j, i, k, m] = -cofactor if odd else cofactor
    return (result,)


def adjugate_derivative(algebra: Algebra, arguments: Arguments, facts: ArgumentFacts) -> Outputs:
    (jacobian,) = adjugate_jacobian(algebra, arguments[:1], facts)
    result = _zeros(algebra, arguments[0].shape)
    for j, i, k, m in np.ndindex(jacobian.shape):
        if k != i and m != j:
            result[j, i] = result[j, i] + jacobian[j, i, k, m] * arguments[1][k, m]
    return (result,)


def _without(places: Iterable[int], *left_out: int) -> Places:
    return tuple(place for place in places if place not in left_out)


def log_absolute_determinant(
    algebra: Algebra, arguments: Arguments, facts: ArgumentFacts
) -> Outputs:
    pivots, _ = _pivots(algebra, arguments[0], facts[0])
    return (np.array(_sum_of_logarithms(algebra, pivots), dtype=object),)


def log_determinant(algebra: Algebra, arguments: Arguments, facts: ArgumentFacts) -> Outputs:
    """Return -inf where the determinant is zero, nan where it is negative."""
    pivots, sign = _pivots(algebra, arguments[0], facts[0])
    total = _sum_of_logarithms(algebra, pivots)
    if "spd" not in facts[0]:
        for pivot in pivots:
            sign = algebra.choose(algebra.greater(algebra.number(0), pivot), -sign, sign)
        regular = algebra.greater(total, algebra.number(-np.inf))
        total = algebra.choose(regular, total + algebra.log(sign), total)
    return (np.array(total, dtype=object),)


def _sum_of_logarithms(algebra: Algebra, pivots: Sequence[Any]) -> Any:
    total = algebra.number(0)
    for pivot in pivots:
        total = total + algebra.log(algebra.absolute(pivot))
    return total


def cholesky(algebra: Algebra, arguments: Arguments, facts: ArgumentFacts) -> Outputs:
    return (lower_factor(algebra, arguments[0]),)


def half_lower(algebra: Algebra, arguments: Arguments, facts: ArgumentFacts) -> Outputs:
    (a,) = arguments
    result = _zeros(algebra, a.shape)
    for i in range(len(a)):
        result[i, :i] = a[i, :i]
        result[i, i] = a[i, i] * algebra.number(0.5)
    return (result,)


def _largest(algebra: Algebra, x: Entries) -> Any:
    largest = x[0]
    for entry in x[1:]:
        largest = algebra.maximum(largest, entry)
    return largest


def softmax(algebra: Algebra, arguments: Arguments, facts: ArgumentFacts) -> Outputs:
    (x,) = arguments
    largest = _largest(algebra, x)
    powers = [algebra.exp(entry - largest) for entry in x]  # at most 1: no overflow
    reciprocal = algebra.number(1) / sum(powers[1:], powers[0])
    return (np.array([power * reciprocal for power in powers], dtype=object),)


def log_softmax(algebra: Algebra, arguments: Arguments, facts: ArgumentFacts) -> Outputs:
    (x,) = arguments
    largest = _largest(algebra, x)
    below = [entry - largest for entry in x]
    powers = [algebra.exp(entry) for entry in below]
    total = algebra.log(sum(powers[1:], powers[0]))
    return (np.array([entry - total for entry in below], dtype=object),)


def logsumexp(algebra: Algebra, arguments: Arguments, facts: ArgumentFacts) -> Outputs:
    (x,) = arguments
    largest = _largest(algebra, x)
    powers = [algebra.exp(entry - largest) for entry in x]
    total = largest + algebra.log(sum(powers[1:], powers[0]))
    is_finite = algebra.greater(algebra.number(np.inf), algebra.absolute(largest))
    # inf - inf is nan
    return (np.array(algebra.choose(is_finite, total, largest), dtype=object),)


def skew(algebra: Algebra, arguments: Arguments, facts: ArgumentFacts) -> Outputs:
    (x, y, z), zero = arguments[0], algebra.number(0)
    return (np.array([[zero, -z, y], [z, zero, -x], [-y, x, zero]], dtype=object),)


def axial(algebra: Algebra, arguments: Arguments, facts: ArgumentFacts) -> Outputs:
    (a,) = arguments
    vector = [a[2, 1] - a[1, 2], a[0, 2] - a[2, 0], a[1, 0] - a[0, 1]]
    return (np.array(vector, dtype=object),)
