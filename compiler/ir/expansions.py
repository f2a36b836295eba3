"""Expansions of scalar expressions at 0: truncated Laurent series of a positive variable.

Their coefficients may hold the variable's logarithm, which grows slower than every power. A series
gives the limit of a quotient 0/0, and replaces the quotient near 0, where it would cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import sympy
from sympy.core.relational import Relational

from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.divided_differences import VARIABLE, taylor

LOGARITHM = sympy.Symbol("log_t", real=True)
"""The logarithm of the variable, within coefficients."""


class NoExpansion(Exception):
    """The expression is not known to have a Laurent series."""


class Series(NamedTuple):
    """Σ_k coefficients[k] t^(start + k), up to a remainder of the next order. The first
    coefficient is not zero. `cancels`: whether terms of lower order than `start` cancelled."""

    start: int
    coefficients: tuple[sympy.Expr, ...]
    cancels: bool = False

    def coefficient(self, order: int) -> sympy.Expr:
        """Return the coefficient of t^order. Raises NoExpansion for a term of the remainder."""
        if order >= self.start + len(self.coefficients):
            raise NoExpansion
        return self.coefficients[order - self.start] if order >= self.start else sympy.S.Zero

    @property
    def leading_and_ratios(self) -> tuple[sympy.Expr, list[sympy.Expr]]:
        """a and the coefficients of u, where the series is a t^start (1 + u)."""
        leading, *further = self.coefficients
        return leading, [sympy.expand(part / leading) for part in further]


def expansion(expression: sympy.Expr, variable: sympy.Symbol, terms: int) -> Series:
    """Expand an expression at variable = 0+, each part of it with `terms` terms. Raises NoExpansion
    where a part has no series (essential singularities, kinks, roots of odd order), and where all
    computed terms cancel."""
    expander = _Expander(variable, terms)
    return expander.series(expander.resolved(expression))


class _Expander:
    """Expands expressions of one variable, part by part."""

    def __init__(self, variable: sympy.Symbol, terms: int) -> None:
        self.variable = variable
        self.terms = terms
        self.cache: dict[sympy.Expr, Series] = {}

    def resolved(self, expression: sympy.Expr) -> sympy.Expr:
        """Replace signs, maxima and minima by what they are for small values of the variable: these
        are exact, and terms that cancel with them leave no remainder."""
        changed = expression.replace(sympy.sign, self._sign)
        for extreme in (sympy.Max, sympy.Min):
            changed = changed.replace(extreme, partial(self._resolved_extreme, extreme))
        return changed

    def _sign(self, inside: sympy.Expr) -> sympy.Expr:
        try:
            leading = self.series(inside).coefficients[0]
        except NoExpansion:
            return sympy.sign(inside)
        return sympy.sign(inside if leading.has(LOGARITHM) else leading)

    def _resolved_extreme(self, extreme: type[sympy.Expr], *arguments: sympy.Expr) -> sympy.Expr:
        expression = extreme(*arguments)
        try:
            return self._extreme(expression) if isinstance(expression, extreme) else expression
        except NoExpansion:
            return expression

    def series(self, expression: sympy.Expr) -> Series:
        if expression not in self.cache:
            self.cache[expression] = self._expand(expression)
        return self.cache[expression]

    def _expand(self, expression: sympy.Expr) -> Series:
        if not expression.has(self.variable):
            return self._constant(expression)
        match expression:
            case sympy.Symbol():
                return self._constant(sympy.S.One)._replace(start=1)
            case sympy.Add():
                return self._sum([self.series(part) for part in expression.args])
            case sympy.Mul():
                product = self._constant(sympy.S.One)
                for part in expression.args:
                    product = self._product(product, self.series(part))
                return product
            case sympy.exp():
                return self._compose(expression)
            case sympy.Pow(args=(base, exponent)) if not exponent.has(self.variable):
                return self._power(self.series(base), exponent)
            case sympy.Pow(args=(base, _)) if not base.has(self.variable):
                return self._compose(expression)
            case sympy.log():
                return self._logarithm(self.series(expression.args[0]))
            case sympy.Piecewise():
                return self.series(self._branch(expression))
            case sympy.Max() | sympy.Min():
                return self.series(self._extreme(expression))
            case scalar_functions.relu() | scalar_functions.step():
                return self.series(expression.definition())
            case sympy.Function():
                return self._compose(expression)
        raise NoExpansion

    def _constant(self, value: sympy.Expr) -> Series:
        """Return the series of a constant; only that of 0 has a first coefficient 0."""
        return Series(0, (value, *[sympy.S.Zero] * (self.terms - 1)))

    def _sum(self, parts: Sequence[Series]) -> Series:
        start = min(part.start for part in parts)
        stop = min(part.start + len(part.coefficients) for part in parts)
        totals = [
            sympy.expand(sympy.Add(*(part.coefficient(order) for part in parts)))
            for order in range(start, stop)
        ]
        return _without_leading_zeros(start, totals, any(part.cancels for part in parts))

    def _product(self, a: Series, b: Series) -> Series:
        count = min(len(a.coefficients), len(b.coefficients))
        totals = [
            sympy.expand(
                sympy.Add(*(a.coefficients[i] * b.coefficients[k - i] for i in range(k + 1)))
            )
            for k in range(count)
        ]
        return Series(a.start + b.start, tuple(totals), a.cancels or b.cancels)

    def _power(self, base: Series, exponent: sympy.Expr) -> Series:
        """(a t^m (1 + u))^p = a^p t^(m p) Σ_k binomial(p, k) u^k."""
        start = base.start * exponent
        if not start.is_Integer:
            raise NoExpansion
        leading, ratios = base.leading_and_ratios
        weights = [sympy.binomial(exponent, k) for k in range(len(base.coefficients))]
        total = self._polynomial(weights, ratios)
        scale = leading**exponent
        coefficients = tuple(sympy.expand(scale * part) for part in total)
        return Series(int(start), coefficients, base.cancels)

    def _logarithm(self, inside: Series) -> Series:
        """log(a t^m (1 + u)) = log(a) + m log(t) + log(1 + u)."""
        leading, ratios = inside.leading_and_ratios
        weights = [-(sympy.Integer(-1) ** k) / max(k, 1) for k in range(len(inside.coefficients))]
        weights[0] = sympy.log(leading) + inside.start * LOGARITHM
        return _without_leading_zeros(0, self._polynomial(weights, ratios), inside.cancels)

    def _compose(self, expression: sympy.Expr) -> Series:
        """Expand f(c + u) by Taylor's series of f at c."""
        varying = [part for part in expression.args if part.has(self.variable)]
        if len(varying) > 1:
            raise NoExpansion
        inside = self.series(varying[0])
        if inside.start < 0 or LOGARITHM in sympy.Tuple(*inside.coefficients).free_symbols:
            raise NoExpansion
        shift = [sympy.S.Zero] * inside.start
        center, *ratios = [*shift, *inside.coefficients][: self.terms]
        function = expression.xreplace({varying[0]: VARIABLE})
        weights = [
            taylor(function, order).xreplace({VARIABLE: center}) for order in range(len(ratios) + 1)
        ]
        if any(part.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo) for part in weights):
            raise NoExpansion
        result = _without_leading_zeros(0, self._polynomial(weights, tuple(ratios)), inside.cancels)
        # f(u) is as accurate as u where f(0) = 0; f(1 + u) has lost the digits that 1 + u has lost
        return result._replace(cancels=inside.cancels or (result.start > 0 and inside.start == 0))

    def _polynomial(
        self, weights: Sequence[sympy.Expr], tail: Sequence[sympy.Expr]
    ) -> list[sympy.Expr]:
        """Return the coefficients of Σ_k weights[k] u^k, where u = tail[0] t + tail[1] t² + ..."""
        count = len(tail) + 1
        total = [sympy.S.Zero] * count
        for weight in reversed(weights):
            shifted = [
                sympy.expand(sympy.Add(*(tail[i] * total[k - 1 - i] for i in range(k))))
                for k in range(count)
            ]
            total = [weight, *shifted[1:]]
        return total

    def _extreme(self, expression: sympy.Max | sympy.Min) -> sympy.Expr:
        """Return the argument that is largest or smallest for small values of the variable."""
        relation = sympy.Ge if isinstance(expression, sympy.Max) else sympy.Le
        extreme, *candidates = expression.args
        for candidate in candidates:
            if not self._holds(relation(extreme, candidate, evaluate=False)):
                extreme = candidate
        return extreme

    def _branch(self, pieces: sympy.Piecewise) -> sympy.Expr:
        """Return the piece that holds for small values of the variable."""
        for expression, condition in pieces.args:
            if self._holds(condition):
                return expression
        raise NoExpansion

    def _holds(self, condition: sympy.Basic) -> bool:
        match condition:
            case sympy.true | sympy.false:
                return bool(condition)
            case sympy.And():
                return all(map(self._holds, condition.args))
            case sympy.Or():
                return any(map(self._holds, condition.args))
            case sympy.Not():
                return not self._holds(condition.args[0])
            case Relational():
                difference = self.series(condition.lhs - condition.rhs)
                holds = condition.func(difference.coefficients[0], 0)
                if holds in (sympy.true, sympy.false):
                    return bool(holds)
        raise NoExpansion


def _without_leading_zeros(start: int, coefficients: Sequence[sympy.Expr], cancels: bool) -> Series:
    """Make a series start at its first coefficient that has not cancelled."""
    skipped = next((i for i, part in enumerate(coefficients) if part != 0), None)
    if skipped is None:
        raise NoExpansion
    return Series(start + skipped, tuple(coefficients[skipped:]), cancels or skipped > 0)
