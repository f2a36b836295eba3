"""Divided differences of scalar expressions, of every order, accurate at points that are equal.

f[x, y] = (f(x) - f(y)) / (x - y), f[x, y, z] = (f[x, y] - f[y, z]) / (x - z), ... do not depend on
the order of the points and have derivatives where points meet (de Boor, Divided Differences, 2005).
Rules for sums, products, powers and compositions reduce them to differences of elementary
functions: (f g)[x, y] = f(x) g[x, y] + f[x, y] g(y), f(g)[x, y] = f[g(x), g(y)] g[x, y].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import sympy

from derivatrix.compiler.ir import scalar_functions
from derivatrix.runtime.errors import UnsupportedError

VARIABLE = sympy.Symbol("z", real=True)
"""The argument of the functions whose differences are taken."""

TAYLOR_TERMS = 8
"""Terms of Taylor's series after the first."""

ROUNDING = sympy.Float("2e-16")
"""Unit roundoff of float64, rounded up."""

JUMPING = (
    sympy.Piecewise,
    sympy.floor,
    sympy.ceiling,
    sympy.Heaviside,
    scalar_functions.step,
)
"""Functions without divided differences, as they may jump."""

KINKED = (sympy.Abs, sympy.Max, sympy.Min, scalar_functions.relu)
"""Functions with kinks that are differences of absolute values."""


class HasDifferences(scalar_functions.ScalarFunction):
    """A function with a rule for its first difference."""

    def difference(self, variable: sympy.Symbol, other: sympy.Symbol) -> sympy.Expr:
        """Return f[variable, other] of this expression f of `variable`."""
        raise UnsupportedError(f"{self} has no divided differences")


class Differences(scalar_functions.ScalarFunction):
    """The divided difference of `function`, an expression of VARIABLE, at two or more points, in
    any order; see `differences`."""

    nargs: int | None = None  # type: ignore[assignment]
    function: sympy.Expr

    @classmethod
    def eval(cls, *points: sympy.Expr) -> sympy.Expr | None:
        """Sort the points; at equal ones take the term of Taylor's series."""
        if len(set(points)) == 1:
            return taylor(cls.function, len(points) - 1).xreplace({VARIABLE: points[0]})
        ordered = sorted(points, key=sympy.default_sort_key)
        return None if ordered == list(points) else cls(*ordered)

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return self.func(*self.args, self.args[argindex - 1])

    def _eval_evalf(self, prec: int) -> sympy.Expr:
        names, steps, result = program(self.function, len(self.args))
        values = dict(zip(names, self.args, strict=True))
        for name, part in steps:
            values[name] = part.xreplace(values)._eval_evalf(prec)
        return result.xreplace(values)._eval_evalf(prec)

    def _numpycode(self, printer: sympy.printing.printer.Printer) -> str:
        names, steps, result = program(self.function, len(self.args))
        assignments = [f"{name} := {printer._print(part)}" for name, part in steps]
        body = ", ".join([*assignments, printer._print(result)])
        arguments = ", ".join(map(printer._print, self.args))
        return f"(lambda {', '.join(map(str, names))}: ({body})[-1])({arguments})"

    _scipycode = _numpycode


@cache
def differences(function: sympy.Expr) -> type[Differences]:
    """Return the divided differences of an expression of VARIABLE, as a SymPy function of points.
    Its name is that of the elementary function, as "exp", or the expression."""
    plain = isinstance(function, sympy.Function) and function.args == (VARIABLE,)
    name = function.func.__name__ if plain else f"({function})"
    return type(name, (Differences,), {"function": function})


@cache
def taylor(function: sympy.Expr, order: int) -> sympy.Expr:
    """Return the derivative of an expression of VARIABLE, divided by the factorial of its order."""
    if order == 0:
        return function
    slope = scalar_functions.derivative(taylor(function, order - 1), VARIABLE) / order
    return sympy.expand_mul(
        slope.replace(scalar_functions.sigmoid, lambda x: (1 + sympy.tanh(x / 2)) / 2)
    )


Step = tuple[sympy.Symbol, sympy.Expr]


@cache
def program(function: sympy.Expr, count: int) -> tuple[list[sympy.Symbol], list[Step], sympy.Expr]:
    """Return a straight-line program for the difference at `count` points: the points' names, the
    steps (name, expression), and the result. The points are sorted first; then come the differences
    at neighbours, by order."""
    names = [sympy.Symbol(f"p{i}", real=True) for i in range(count)]
    steps: list[Step] = []

    def assign(part: sympy.Expr) -> sympy.Symbol:
        name = sympy.Symbol(f"t{len(steps)}", real=True)
        steps.append((name, part))
        return name

    points = list(names)
    for end in range(count - 1, 0, -1):
        for i in range(end):
            low, high = points[i : i + 2]
            points[i : i + 2] = assign(sympy.Min(low, high)), assign(sympy.Max(low, high))
    table = [assign(function.xreplace({VARIABLE: point})) for point in points]
    for order in range(1, count):
        table = [
            assign(_at_neighbours(function, points[i : i + order + 1], table[i : i + 2], assign))
            for i in range(count - order)
        ]
    return names, steps[:-1], steps[-1][1]


def _at_neighbours(
    function: sympy.Expr,
    points: Sequence[sympy.Symbol],
    lower: Sequence[sympy.Symbol],
    assign: Callable[[sympy.Expr], sympy.Symbol],
) -> sympy.Expr:
    """Return the difference at ascending points: of `lower`, those at all points but the last and
    but the first, or Taylor's polynomial about the mean where it is accurate to rounding."""
    order = len(points) - 1
    mean = assign(sympy.Add(*points) / len(points))
    gaps = [assign(point - mean) for point in points]
    radius = assign(points[-1] - points[0])
    series = [
        assign(taylor(function, k).xreplace({VARIABLE: mean}))
        for k in range(order + TAYLOR_TERMS + 1)
    ]
    remainder = sympy.Add(*(abs(series[-k] * radius ** (len(series) - k)) for k in (1, 2)))
    # strictly: where exp(mean) underflows, both sides are 0, and the points may be far apart
    is_close = sympy.Or(
        remainder < ROUNDING * (abs(series[0]) + abs(series[1] * radius)), sympy.Eq(radius, 0)
    )
    # complete homogeneous symmetric polynomials of the gaps, which multiply Taylor's coefficients
    complete = [sympy.S.One] + [sympy.S.Zero] * TAYLOR_TERMS
    for gap in gaps:
        for k in range(TAYLOR_TERMS):
            complete[k + 1] = assign(complete[k + 1] + gap * complete[k])
    polynomial = sympy.Add(*(s * p for s, p in zip(series[order:], complete, strict=True)))
    return sympy.Piecewise((polynomial, is_close), ((lower[1] - lower[0]) / radius, True))


@cache
def difference(expression: sympy.Expr, variable: sympy.Symbol, other: sympy.Symbol) -> sympy.Expr:
    """Return f[variable, other] of an expression f of `variable`. Raises UnsupportedError for
    functions that may jump, nested kinks, and other functions of several arguments that vary
    than `max` and `min`."""
    at_other = expression.xreplace({variable: other})
    if expression == variable:
        return sympy.S.One
    if not expression.has(variable):
        return sympy.S.Zero

    def inner(part: sympy.Expr) -> sympy.Expr:
        return difference(part, variable, other)

    if isinstance(expression, sympy.Add):
        return sympy.Add(*map(inner, expression.args))
    if isinstance(expression, sympy.Mul):
        factor, cofactor = expression.args[0], sympy.Mul(*expression.args[1:])
        return factor * inner(cofactor) + inner(factor) * cofactor.xreplace({variable: other})
    if isinstance(expression, HasDifferences):
        return expression.difference(variable, other)
    if isinstance(expression, Differences):
        return _by_single_points(expression, variable, other)
    if isinstance(expression, sympy.Abs | scalar_functions.relu):
        part = expression.args[0]
        part_at_other = part.xreplace({variable: other})
        is_relu = isinstance(expression, scalar_functions.relu)
        total = expression + at_other if is_relu else part + part_at_other
        # |x| - |y| = (x - y) (x + y) / (|x| + |y|), and relu likewise
        return inner(part) * total / (sympy.Abs(part) + sympy.Abs(part_at_other))
    if isinstance(expression, sympy.Max | sympy.Min):
        return inner(_by_absolute_values(expression))
    if isinstance(expression, sympy.sign):
        part = expression.args[0]
        return inner(part / sympy.Abs(part))
    base, exponent = expression.as_base_exp()
    if isinstance(expression, sympy.Pow) and exponent.is_Integer:
        if exponent < 0:
            return -inner(1 / expression) * expression * at_other
        base_at_other = base.xreplace({variable: other})
        powers = [base**k * base_at_other ** (exponent - 1 - k) for k in range(exponent)]
        return inner(base) * sympy.Add(*powers)
    if isinstance(expression, sympy.Pow) and (2 * exponent).is_Integer:
        return inner(base ** (2 * exponent)) / (expression + at_other)
    if isinstance(expression, sympy.Pow) and exponent.has(variable):
        return inner(sympy.exp(exponent * sympy.log(base), evaluate=False))
    return _by_chain(expression, variable, other)


def _by_absolute_values(expression: sympy.Max | sympy.Min) -> sympy.Expr:
    """Write max(x, y) = (x + y + |x - y|) / 2, min(x, y) likewise, and clip(x, a, b) = (a + b +
    |x - a| - |x - b|) / 2, as nested kinks have derivatives too long for `finite_parts`. Raises
    UnsupportedError for other nested kinks."""
    first, second = expression.args[0], expression.func(*expression.args[1:])
    sign = 1 if isinstance(expression, sympy.Max) else -1
    if first.is_number and isinstance(second, sympy.Max | sympy.Min):
        bound, inside = second.args[0], second.func(*second.args[1:])
        if bound.is_number and sign * (bound - first) >= 0 and not inside.has(*KINKED):
            return (
                first + bound + sign * (sympy.Abs(inside - first) - sympy.Abs(inside - bound))
            ) / 2
    if len(expression.args) > 2 or any(part.has(*KINKED) for part in expression.args):
        raise UnsupportedError(f"{expression} has no divided differences")
    return (first + second + sign * sympy.Abs(first - second)) / 2


def _by_chain(expression: sympy.Expr, variable: sympy.Symbol, other: sympy.Symbol) -> sympy.Expr:
    """f(g)[x, y] = f[g(x), g(y)] g[x, y]."""
    varying = [part for part in expression.args if part.has(variable)]
    constant = [part for part in expression.args if not part.has(variable)]
    if (
        isinstance(expression, JUMPING)
        or len(varying) > 1
        or not all(p.is_number for p in constant)
    ):
        raise UnsupportedError(f"{expression} has no divided differences")
    parts = [VARIABLE if part in varying else part for part in expression.args]
    points = varying[0], varying[0].xreplace({variable: other})
    function = differences(expression.func(*parts))
    return function(*points) * difference(varying[0], variable, other)


def _by_single_points(
    expression: Differences, variable: sympy.Symbol, other: sympy.Symbol
) -> sympy.Expr:
    """Move the points one by one: f[a, c] - f[b, c] = (a - b) f[a, b, c]."""
    points = expression.args
    targets = [point.xreplace({variable: other}) for point in points]
    return sympy.Add(
        *(
            expression.func(*points[: i + 1], *targets[i:]) * difference(point, variable, other)
            for i, point in enumerate(points)
            if point.has(variable)
        )
    )
