"""Weights of eigenvectors that differ from one eigenvalue to another by constants, as the zeros and
ones of a spectral projector do, and divided differences of such weights.

A weight c_i f(λ_i) with constants c_i has a derivative at repeated eigenvalues if their constants
are equal: the coefficient at a pair i, j is c_i f[λ_i, λ_j] where c_i = c_j, so that no gap is
formed, and (c_i f(λ_i) - c_j f(λ_j)) / (λ_i - λ_j) elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import product

import sympy
from sympy.printing.printer import Printer

from derivatrix.compiler.ir.divided_differences import HasDifferences, difference

LEVEL = sympy.Symbol("level", real=True)
"""The size below which a difference of the values may be all rounding."""


class Constant(sympy.Symbol):
    """The constant of an eigenvalue in a weight: entry `index` of the vector `number`."""

    def __new__(cls, number: int, index: int | str) -> Constant:
        return super().__new__(cls, f"constant{number}_{index}", real=True)


class same(HasDifferences):
    """The indicator of x = y, for constants."""

    nargs = 2
    numpy_text = "np.where({0} == {1}, 1, 0)"

    @classmethod
    def eval(cls, x: sympy.Expr, y: sympy.Expr) -> sympy.Expr | None:
        """Order the arguments."""
        if x == y or (x.is_number and y.is_number):
            return sympy.Integer(x == y)
        return cls(y, x) if sympy.default_sort_key(y) < sympy.default_sort_key(x) else None

    def definition(self) -> sympy.Expr:
        return sympy.Piecewise((1, sympy.Eq(*self.args)), (0, True))

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return sympy.S.Zero


class selected(HasDifferences):
    """c f, and 0 where the constant c is 0, even if f is not finite."""

    nargs = 2

    @classmethod
    def eval(cls, constant: sympy.Expr, function: sympy.Expr) -> sympy.Expr | None:
        if constant.is_number or function.is_number:
            return constant * function if constant != 0 else constant
        if isinstance(function, selected):
            return selected(constant * function.args[0], function.args[1])
        return None

    def definition(self) -> sympy.Expr:
        constant, function = self.args
        return sympy.Piecewise((0, sympy.Eq(constant, 0)), (constant * function, True))

    def _numpycode(self, printer: Printer) -> str:
        constant, function = self.args
        product = printer._print(sympy.Mul(constant, function, evaluate=False))
        return f"np.where({printer._print(constant)} == 0, 0, {product})"

    _scipycode = _numpycode

    def _eval_derivative(self, variable: sympy.Symbol) -> sympy.Expr:
        constant, function = self.args
        return selected(constant, function.diff(variable))

    def difference(self, variable: sympy.Symbol, other: sympy.Symbol) -> sympy.Expr:
        constant, function = self.args
        return selected(constant, difference(function, variable, other))


class reciprocal(HasDifferences):
    """1/x, nan where |x| is at most `level`, and 0 where `excluded` is 1."""

    nargs = 3

    @classmethod
    def eval(cls, x: sympy.Expr, excluded: sympy.Expr, level: sympy.Expr) -> sympy.Expr | None:
        """Pull out the coefficient of x."""
        coefficient, variable = x.as_coeff_Mul()
        if variable.could_extract_minus_sign():
            coefficient, variable = -coefficient, -variable
        if coefficient == 1:
            return None
        return cls(variable, excluded, level / abs(coefficient)) / coefficient

    def definition(self) -> sympy.Expr:
        x, excluded, level = self.args
        pieces = [] if excluded == 0 else [(0, excluded > sympy.S.Half)]
        return sympy.Piecewise(*pieces, (1 / x, sympy.Abs(x) > level))

    def _numpycode(self, printer: Printer) -> str:
        x, excluded, level = map(printer._print, self.args)
        quotient = f"1 / np.where(np.abs({x}) > {level}, {x}, np.nan)"
        return f"({quotient})" if self.args[1] == 0 else f"np.where({excluded}, 0, {quotient})"

    _scipycode = _numpycode

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return -(self**2) if argindex == 1 else sympy.S.Zero

    def difference(self, variable: sympy.Symbol, other: sympy.Symbol) -> sympy.Expr:
        return -self * self.xreplace({variable: other}) * difference(self.args[0], variable, other)


def gathered(expression: sympy.Expr) -> sympy.Expr:
    """Write an expression as a sum of `selected`, one for each product of constants, and cancel x
    with the reciprocal of x."""
    functions: dict[sympy.Expr, sympy.Expr] = {}
    for constant, function in _products(expression):
        functions[constant] = functions.get(constant, sympy.S.Zero) + _cancelled(function)
    return sympy.Add(*(selected(*pair) for pair in functions.items()))


def _products(expression: sympy.Expr) -> Iterator[tuple[sympy.Expr, sympy.Expr]]:
    """Yield the terms of an expression, as products of constants and of other factors."""
    if isinstance(expression, selected):
        constant, function = expression.args
        yield from ((constant * c, f) for c, f in _products(function))
    elif isinstance(expression, sympy.Add):
        for term in expression.args:
            yield from _products(term)
    elif isinstance(expression, sympy.Mul):
        left, right = expression.as_two_terms()
        for (c, f), (d, g) in product(_products(left), list(_products(right))):
            yield c * d, f * g
    elif expression.free_symbols and all(isinstance(s, Constant) for s in expression.free_symbols):
        yield expression, sympy.S.One
    else:
        yield sympy.S.One, expression


def _cancelled(function: sympy.Expr) -> sympy.Expr:
    for part in sorted(function.atoms(reciprocal), key=sympy.default_sort_key):
        shared = min(_power(function, part), _power(function, part.args[0]))
        if shared > 0:
            function = function * (part * part.args[0]) ** -shared
    return function


def _power(function: sympy.Expr, base: sympy.Expr) -> int:
    exponent = function.as_powers_dict().get(base, 0)
    return int(exponent) if sympy.sympify(exponent).is_Integer else 0


def sum_quotient(
    expression: sympy.Expr, variable: sympy.Symbol, other: sympy.Symbol, signs: tuple[int, int]
) -> sympy.Expr:
    """Return (s f(y) - t f(x)) / (x + y) for the signs s, t; nan where x + y is at most LEVEL,
    unless x + y divides the numerator of a product of powers and reciprocals."""
    if isinstance(expression, sympy.Add):
        return sympy.Add(*(sum_quotient(part, variable, other, signs) for part in expression.args))
    if isinstance(expression, selected):
        constant, function = expression.args
        return selected(constant, sum_quotient(function, variable, other, signs))
    free, function = expression.as_independent(variable, as_Add=False)
    if free != 1:
        return free * sum_quotient(function, variable, other, signs)
    factors = _factors(function, variable)
    if factors is not None and signs[1] == signs[0] * sympy.prod(p for _, p in factors):
        return signs[0] * _telescoped(factors, variable, other)
    at_other = function.xreplace({variable: other})
    numerator = signs[0] * at_other - signs[1] * function
    if function.is_rational_function():
        quotient = sympy.cancel(sympy.together(numerator / (variable + other)))
        if sympy.denom(quotient).xreplace({other: -variable}).expand() != 0:
            return quotient
    return numerator * reciprocal(variable + other, sympy.S.Zero, LEVEL)


Factors = list[tuple[sympy.Expr, int]]


def _factors(function: sympy.Expr, variable: sympy.Symbol) -> Factors | None:
    """Split a product into powers of the variable, and reciprocals that are even or odd in it, each
    with its parity 1 or -1; None for other products."""
    factors: Factors = []
    for base, exponent in function.as_powers_dict().items():
        if not sympy.sympify(exponent).is_Integer:
            return None
        if base == variable:
            factors += [(base ** sympy.sign(exponent), -1)] * abs(int(exponent))
            continue
        if base == 1:
            continue
        if not isinstance(base, reciprocal) or exponent < 0:
            return None
        reflected = sympy.expand(base.args[0].xreplace({variable: -variable}))
        parity = 1 if reflected == sympy.expand(base.args[0]) else -1
        if parity < 0 and reflected != sympy.expand(-base.args[0]):
            return None
        factors += [(base, parity)] * int(exponent)
    return factors


def _telescoped(factors: Factors, variable: sympy.Symbol, other: sympy.Symbol) -> sympy.Expr:
    """Return (f(y) - p f(x)) / (x + y) for a product f of factors, and its parity p."""
    terms = []
    for k, (factor, parity) in enumerate(factors):
        before = sympy.prod(p * g for g, p in factors[:k])
        after = sympy.prod(g.xreplace({variable: other}) for g, _ in factors[k + 1 :])
        x = factor.args[0] if isinstance(factor, reciprocal) else 1 / factor
        at_other = factor.xreplace({variable: other})
        over = (x - parity * x.xreplace({variable: other})) / (variable + other)
        terms.append(before * factor * at_other * sympy.cancel(sympy.together(over)) * after)
    return sympy.Add(*terms)


def pair_weight(
    weight: sympy.Expr,
    variable: sympy.Symbol,
    other: sympy.Symbol,
    constants: Sequence[tuple[sympy.Symbol, sympy.Symbol]],
) -> sympy.Expr:
    """Return w[λ_i, λ_j] for the weight w of an eigenvalue and of constants, with pairs of both."""
    near = difference(weight, variable, other)
    equality = _equality(weight, constants)
    if equality is None:
        return near
    far = weight.xreplace({variable: other, **dict(constants)})
    return selected(equality, near) + (weight - far) * reciprocal(variable - other, equality, LEVEL)


def singular_pair_weights(
    weight: sympy.Expr,
    variable: sympy.Symbol,
    other: sympy.Symbol,
    constants: Sequence[tuple[sympy.Symbol, sympy.Symbol]],
    signs: tuple[int, int],
    outside: Collection[tuple[int, bool]],
) -> tuple[sympy.Expr, sympy.Expr]:
    """Return (S + C)/2 and (S - C)/2 with S = w[σ_i, σ_j] and C = (s w(σ_j) - t w(σ_i)) / (σ_i +
    σ_j) for the signs s, t. Where the constants differ both are (a w(σ_i) - b w(σ_j)) g with g =
    1/(σ_i² - σ_j²) and a, b in σ_i, σ_j.

    outside: pairs (position among the two results, whether of σ_j) of quotients w/σ to subtract.
    With σ_i g - 1/σ_i = σ_j² g / σ_i no quotient by a σ_j of zero is left.
    """
    weight = gathered(weight) if weight.has(selected, reciprocal, Constant) else weight
    far = weight.xreplace({variable: other, **dict(constants)})
    even = difference(weight, variable, other)
    odd = sum_quotient(weight, variable, other, signs)
    equality = _equality(weight, constants)
    gap = reciprocal(variable**2 - other**2, equality or sympy.S.Zero, LEVEL * (variable + other))
    results = []
    for position, sign in enumerate((1, -1)):
        pair = (even + sign * odd) / 2
        total, gap_ = variable + other, sign * (variable - other)
        near_share, far_share = ((total - t * gap_) / 2 for t in (signs[1], signs[0]))
        if (position, False) in outside:
            pair -= over(weight, variable)
            near_share = other**2 * _guarded(variable)
        if (position, True) in outside:
            pair -= over(far, other)
            far_share = variable**2 * _guarded(other)
        if equality is not None:
            change = near_share * weight - far_share * far
            pair = gathered(selected(equality, pair) + change * gap)
        results.append(pair)
    return results[0], results[1]


def over(weight: sympy.Expr, variable: sympy.Symbol) -> sympy.Expr:
    """Divide a weight by a singular value; nan where that is 0 and does not cancel."""
    return gathered(weight * _guarded(variable))


def _guarded(variable: sympy.Symbol) -> sympy.Expr:
    return reciprocal(variable, sympy.S.Zero, LEVEL)


def _equality(
    weight: sympy.Expr, constants: Sequence[tuple[sympy.Symbol, sympy.Symbol]]
) -> sympy.Expr | None:
    """Return the indicator that the constants of a weight equal the others; None if it has none."""
    present = [pair for pair in constants if pair[0] in weight.free_symbols]
    return sympy.prod(same(*pair) for pair in present) if present else None
