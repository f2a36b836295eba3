"""Elementwise functions: SymPy scalar expressions of the slots of a `Map`.

SymPy differentiates, simplifies and prints them. This file maps NumPy's names to expressions, adds
functions that SymPy lacks, and sets derivatives at kinks by convention, where SymPy's are
distributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import sympy
from sympy.printing.printer import Printer

from derivatrix.compiler.ir.numpy_spelling import scalar_text
from derivatrix.runtime.errors import UnsupportedError

UNIT_ROUNDOFF = 2**-53


class ScalarFunction(sympy.Function):
    """A scalar function of real variables that SymPy lacks.

    `numpy_text` is a format string of the arguments. `definition` expresses it by functions that
    kernels have, for kernels without the function itself."""

    nargs = 1
    is_real = True
    numpy_text: str

    def definition(self) -> sympy.Expr | None:
        """Express the function by others."""
        return None

    def _numpycode(self, printer: Printer) -> str:
        return self.numpy_text.format(*map(printer._print, self.args))

    _scipycode = _numpycode

    def _eval_evalf(self, prec: int) -> sympy.Expr | None:
        # SymPy takes mpmath's function of the name, if there is one: its sinc is another one.
        definition = self.definition() if all(x.is_finite for x in self.args) else None
        return super()._eval_evalf(prec) if definition is None else definition._evalf(prec)


class log1p(ScalarFunction):
    """log(1 + x), accurate near 0."""

    numpy_text = "np.log1p({0})"

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return 1 / (1 + self.args[0])


class length(ScalarFunction):
    """The root of a sum of squares, which may exceed the range of numbers."""

    numpy_text = "np.sqrt({0})"

    def definition(self) -> sympy.Expr:
        return sympy.sqrt(self.args[0])


class hypot(ScalarFunction):
    """√(x² + y²), accurate also where the squares exceed the range of numbers."""

    nargs = 2
    numpy_text = "np.hypot({0}, {1})"

    def definition(self) -> sympy.Expr:
        x, y = self.args
        return sympy.sqrt(x**2 + y**2)


class expm1(ScalarFunction):
    """exp(x) - 1, accurate near 0."""

    numpy_text = "np.expm1({0})"

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return sympy.exp(self.args[0])


class sigmoid(ScalarFunction):
    """1 / (1 + exp(-x)), without overflow."""

    numpy_text = "scipy.special.expit({0})"

    def definition(self) -> sympy.Expr:
        return 1 / (1 + sympy.exp(-self.args[0]))

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return sigmoid(self.args[0]) * sigmoid(-self.args[0])


class normcdf(ScalarFunction):
    """The normal distribution function, accurate in both tails."""

    numpy_text = "scipy.special.ndtr({0})"

    def definition(self) -> sympy.Expr:
        return sympy.erfc(-self.args[0] / sympy.sqrt(2), evaluate=False) / 2

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return sympy.exp(-(self.args[0] ** 2) / 2) / sympy.sqrt(2 * sympy.pi)


class scaled_normcdf(ScalarFunction):
    """Φ(x) exp(min(x, 0)² / 2), which does not underflow."""

    numpy_text = "np.exp(scipy.special.log_ndtr({0}) + np.square(np.minimum({0}, 0)) / 2)"

    def definition(self) -> sympy.Expr:
        x = self.args[0]
        return normcdf(x) * sympy.exp(sympy.Min(x, 0) ** 2 / 2)


class log_normcdf(ScalarFunction):
    """log Φ(x) of the normal distribution function Φ, also where Φ underflows."""

    numpy_text = "scipy.special.log_ndtr({0})"

    def definition(self) -> sympy.Expr:
        x = self.args[0]
        return sympy.log(scaled_normcdf(x)) - sympy.Min(x, 0) ** 2 / 2

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return inverse_mills(self.args[0])


class inverse_mills(ScalarFunction):
    """φ(x) / Φ(x) of the normal density φ and its distribution function Φ: the inverse Mills
    ratio."""

    numpy_text = "np.divide(np.sqrt(2 / np.pi), scipy.special.erfcx(np.negative({0}) / np.sqrt(2)))"

    def definition(self) -> sympy.Expr:
        x = self.args[0]
        density = sympy.exp(-(sympy.Max(x, 0) ** 2) / 2) / sympy.sqrt(2 * sympy.pi)
        return density / scaled_normcdf(x)

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        x = self.args[0]
        return -inverse_mills(x) * (x + inverse_mills(x))


class softplus(ScalarFunction):
    """log(1 + exp(x)), without overflow."""

    numpy_text = "np.logaddexp(0, {0})"

    def definition(self) -> sympy.Expr:
        x = self.args[0]
        return sympy.Max(x, 0) + log1p(sympy.exp(-sympy.Abs(x)))

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return sigmoid(self.args[0])


class relu(ScalarFunction):
    """max(x, 0), with derivative 0 at 0."""

    numpy_text = "np.maximum({0}, 0)"

    def definition(self) -> sympy.Expr:
        return sympy.Max(self.args[0], 0)

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return step(self.args[0])


class logaddexp(ScalarFunction):
    """log(exp(x) + exp(y)), without overflow."""

    nargs = 2
    numpy_text = "np.logaddexp({0}, {1})"

    def definition(self) -> sympy.Expr:
        x, y = self.args
        apart = sympy.Max(x, y) + log1p(sympy.exp(-sympy.Abs(x - y)))
        return sympy.Piecewise((x + sympy.log(2), sympy.Eq(x, y)), (apart, True))

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        x, y = self.args
        return sigmoid(x - y) if argindex == 1 else sigmoid(y - x)


class step(ScalarFunction):
    """1 where x > 0, else 0."""

    numpy_text = "np.heaviside({0}, 0)"

    def definition(self) -> sympy.Expr:
        return sympy.Piecewise((1, self.args[0] > 0), (0, True))

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return sympy.S.Zero


class xlogy(ScalarFunction):
    """x log(y), and 0 where x is 0."""

    nargs = 2
    numpy_text = "scipy.special.xlogy({0}, {1})"
    logarithm = sympy.log

    def definition(self) -> sympy.Expr:
        x, y = self.args
        return sympy.Piecewise((0, sympy.Eq(x, 0)), (x * self.logarithm(y), True))

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        x, y = self.args
        if argindex == 1:
            return self.logarithm(y)
        t = sympy.Dummy()  # log(y) itself may be no logarithm: log(exp(z)) is z
        divisor = (1 / self.logarithm(t).diff(t)).xreplace({t: y})
        # Elsewhere the slope of the quotient by x is 1 / divisor, also at x = 0.
        is_undetermined = sympy.Eq(x, 0) & sympy.Eq(divisor, 0)
        return sympy.Piecewise((0, is_undetermined), (x / divisor, True))


class xlog1py(xlogy):
    """x log(1 + y), and 0 where x is 0."""

    numpy_text = "scipy.special.xlog1py({0}, {1})"
    logarithm = log1p


class entr(ScalarFunction):
    """-x log(x), 0 at 0, and -inf below."""

    numpy_text = "scipy.special.entr({0})"

    def definition(self) -> sympy.Expr:
        x = self.args[0]
        below, zero = (-sympy.oo, x < 0), (0, sympy.Eq(x, 0))
        return sympy.Piecewise(below, zero, (-x * sympy.log(x), True))

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return -1 - sympy.log(self.args[0])


class rel_entr(ScalarFunction):
    """x log(x / y), 0 where x is 0, and inf outside x >= 0, y >= 0."""

    nargs = 2
    numpy_text = "scipy.special.rel_entr({0}, {1})"

    def definition(self) -> sympy.Expr:
        x, y = self.args
        outside, zero = (sympy.oo, (x < 0) | (y < 0)), (0, sympy.Eq(x, 0) & (y >= 0))
        # a quotient by -0.0 is -inf, and has no logarithm
        return sympy.Piecewise(outside, zero, (x * sympy.log(x / sympy.Abs(y)), True))

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        x, y = self.args
        slope = 1 + sympy.log(x / y) if argindex == 1 else -x / y
        return sympy.Piecewise((sympy.nan, (x < 0) | (y < 0)), (slope, True))


class spherical(ScalarFunction):
    """j_k(x) / x^k of the spherical Bessel function j_k: even, smooth at 0, and sin(x) / x for
    k = 0. The derivative is -x j_(k+1)(x) / x^(k+1) (DLMF 10.51.3)."""

    nargs = 2

    @classmethod
    def eval(cls, order: sympy.Expr, x: sympy.Expr) -> sympy.Expr | None:
        return 1 / sympy.factorial2(2 * order + 1) if x == 0 else None

    def definition(self) -> sympy.Expr:
        """Return the power series of x² where sines and cosines cancel, else these."""
        order, x = self.args
        square = x**2
        bound = 2 * (2 * order + 3)  # the terms of the series decrease below it
        terms = [1 / sympy.factorial2(2 * order + 1)]
        while abs(terms[-1]) * bound ** (len(terms) - 1) > UNIT_ROUNDOFF * terms[0]:
            count = len(terms)
            terms.append(-terms[-1] / (2 * count * (2 * order + 2 * count + 1)))
        series = sympy.S.Zero
        for term in reversed(terms):
            series = series * square + term
        sine, cosine = _spherical_factors(int(order), 1 / square)
        closed = sine * sympy.sin(x) / x + cosine * sympy.cos(x)
        return sympy.Piecewise((series, square < bound), (closed, True))

    def fdiff(self, argindex: int = 2) -> sympy.Expr:
        order, x = self.args
        return -x * spherical(order + 1, x)

    def _numpycode(self, printer: Printer) -> str:
        order, x = self.args
        if order == 0:
            return f"np.sinc({printer._print(x / sympy.pi)})"
        series = f"scipy.special.hyp0f1({order + 1}.5, {printer._print(-(x**2) / 4)})"
        return f"({series} / {sympy.factorial2(2 * order + 1)})"

    _scipycode = _numpycode


def _spherical_factors(order: int, u: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """Return p and q with j_k(x) / x^k = p sin(x) / x + q cos(x), where u = 1 / x², by the
    recurrence of DLMF 10.51.1."""
    before, current = (sympy.S.Zero, sympy.S.One), (sympy.S.One, sympy.S.Zero)
    for k in range(order):
        following = tuple(u * ((2 * k + 1) * b - a) for a, b in zip(before, current, strict=True))
        before, current = current, (following[0], following[1])
    return current


class sinc(ScalarFunction):
    """sin(π x) / (π x), and 1 at 0."""

    numpy_text = "np.sinc({0})"

    def definition(self) -> sympy.Expr:
        return spherical(0, sympy.pi * self.args[0])

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        x = self.args[0]
        return -(sympy.pi**2) * x * spherical(1, sympy.pi * x)


def _huber(delta: sympy.Expr, x: sympy.Expr) -> sympy.Expr:
    near, far = (x**2 / 2, sympy.Abs(x) <= delta), delta * (sympy.Abs(x) - delta / 2)
    return sympy.Piecewise((sympy.oo, delta < 0), near, (far, True))


FUNCTIONS: dict[str, Callable[..., sympy.Expr]] = {
    **{
        name: getattr(sympy, name)
        for name in (
            *("exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "erf", "erfc"),
            *("erfinv", "gamma", "polygamma", "zeta", "sign", "floor"),
            *("besselj", "bessely", "besseli", "besselk"),
        )
    },
    **{
        f"arc{name}": getattr(sympy, f"a{name}")
        for name in ("sin", "cos", "tan", "tan2", "sinh", "cosh", "tanh")
    },
    "exp2": lambda x: sympy.exp(x * sympy.log(2)),
    "log2": lambda x: sympy.log(x) / sympy.log(2),
    "log10": lambda x: sympy.log(x) / sympy.log(10),
    "log1p": log1p,
    "expm1": expm1,
    "cbrt": lambda x: sympy.sign(x) * sympy.Abs(x) ** sympy.Rational(1, 3),
    "hypot": lambda x, y: sympy.sqrt(x**2 + y**2),
    "gammaln": sympy.loggamma,
    "loggamma": lambda x: sympy.Piecewise((sympy.nan, x < 0), (sympy.loggamma(x), True)),
    "xlogy": xlogy,
    "xlog1py": xlog1py,
    "entr": entr,
    "rel_entr": rel_entr,
    "huber": _huber,
    "sinc": sinc,
    "digamma": lambda x: sympy.polygamma(0, x),
    "normcdf": normcdf,
    "sigmoid": sigmoid,
    "expit": sigmoid,
    "softplus": softplus,
    "logaddexp": logaddexp,
    "relu": relu,
    "abs": sympy.Abs,
    "ceil": sympy.ceiling,
    "maximum": sympy.Max,
    "minimum": sympy.Min,
}
"""NumPy's (or SciPy's) name of an elementwise function -> its SymPy expression."""


LARGEST_EXACT = 2**53
"""Largest integer below which float64 represents every integer."""


def number(value: int | float | Fraction | Decimal | np.number | sympy.Expr) -> sympy.Expr:
    """Convert a Python number to SymPy's: exact if it is a fraction with a small denominator (0.5,
    2.25, Fraction(1, 3)), or an integer up to LARGEST_EXACT."""
    if isinstance(value, sympy.Expr):
        return value
    # abs of np.int8(-128) overflows, and 2**53 in float16
    plain: Any = value.item() if isinstance(value, np.generic) else value
    if not abs(plain) <= LARGEST_EXACT:
        return sympy.Float(float(plain), 17)
    if isinstance(plain, int):
        return sympy.Integer(int(plain))
    exact = Fraction(plain if isinstance(plain, (Fraction, Decimal)) else float(plain))
    if exact.denominator <= 1024:
        return sympy.Rational(exact.numerator, exact.denominator)
    return sympy.Float(float(plain), 17)


PIECEWISE_CONSTANT = (sympy.sign, sympy.floor, sympy.ceiling)
"""Functions that are constant except where they jump."""
INFINITE = (sympy.nan, sympy.oo, -sympy.oo)
"""Values of branches outside a function's domain, which have no derivative."""


def derivative(expression: sympy.Expr, variable: sympy.Symbol) -> sympy.Expr:
    """Differentiate by `variable`, with the usual values at kinks: 0 for the derivative of sign,
    floor and steps, half for max and min at ties, nan where a branch is infinite. Raises
    UnsupportedError where SymPy has no derivative."""
    expression = expression.replace(sympy.Mod, lambda t, by: t - by * sympy.floor(t / by))
    expression = expression.replace(sympy.sinc, lambda x: spherical(0, x))  # smooth at 0
    constants: dict[sympy.Basic, sympy.Expr] = {
        part: sympy.Dummy(real=True) for part in expression.atoms(*PIECEWISE_CONSTANT)
    }
    # Numbers would have the derivative 0, infinite branches have none: they become functions.
    infinite = {part: sympy.Function(f"infinite_{part}")(variable) for part in INFINITE}
    result = _slope(expression.xreplace(constants | infinite), variable)
    result = result.xreplace({part.diff(variable): sympy.nan for part in infinite.values()})
    constants |= infinite
    result = result.xreplace({dummy: part for part, dummy in constants.items()})
    result = result.replace(sympy.DiracDelta, lambda *arguments: sympy.S.Zero)
    result = result.replace(sympy.Heaviside, lambda x, *_: (1 + sympy.sign(x)) / 2)
    unknown = result.atoms(sympy.Derivative, sympy.Subs)
    if unknown:
        raise UnsupportedError(
            f"no derivative is known for {next(iter(unknown)).args[0]}; "
            "write the function with operations that have one"
        )
    return result


def _with_zero_powers(product: sympy.Expr) -> sympy.Expr:
    """Write xᵖ / x as xᵖ⁻¹, which has a value at x = 0, and xᵖ log(x), the slope of xᵖ by p, so
    that it is 0 where xᵖ is."""
    factors = product.as_powers_dict()
    for base, exponent in [*factors.items()]:
        order = factors.get(sympy.log(base), 0)
        if exponent.free_symbols and not base.is_number and order in (1, 2, 3):
            power = base**exponent
            for _ in range(order):
                power = xlogy(power, base)
            other_factors = {b: e for b, e in factors.items() if b not in (base, sympy.log(base))}
            others = sympy.Mul(*(b**e for b, e in other_factors.items()))
            return power * _with_zero_powers(others)
    return sympy.Mul(*(base**exponent for base, exponent in factors.items()))


def _slope(expression: sympy.Expr, variable: sympy.Symbol) -> sympy.Expr:
    """Differentiate as SymPy does, but let arguments of absolute values, as log(x), be real, and
    keep the bases of powers with varying exponents whole: 3 p (x³)ᵖ / x is nan at 0."""
    powers = {power for power in expression.atoms(sympy.Pow) if power.exp.free_symbols}
    inner = {part.args[0] for part in (*expression.atoms(sympy.Abs), *powers)}
    real = {
        part: sympy.Function(f"real_{position}", real=True)(variable)
        for position, part in enumerate(sorted(inner, key=sympy.default_sort_key))
        if not part.is_Symbol and part.has(variable)
    }
    outside = {sympy.Abs(part): sympy.Abs(function) for part, function in real.items()}
    outside |= {power: real[power.base] ** power.exp for power in powers if power.base in real}
    result = expression.xreplace(outside).diff(variable)
    if powers:
        result = result.replace(lambda part: part.is_Mul, _with_zero_powers)
    slopes = {function.diff(variable): _slope(part, variable) for part, function in real.items()}
    return result.xreplace(slopes).xreplace({function: part for part, function in real.items()})


@lru_cache(maxsize=4096)
def _compiled(expression: sympy.Expr, count: int) -> Callable[..., np.ndarray]:
    import scipy.special

    names = ", ".join(f"_{position}" for position in range(count))
    source = f"lambda {names}: {scalar_text(expression)}"
    return eval(source, {"np": np, "scipy": scipy})


def evaluate(expression: sympy.Expr, arguments: Sequence[np.ndarray]) -> np.ndarray:
    """Evaluate an expression of the slots at NumPy arrays. Warnings about branches that a Piecewise
    does not take are suppressed."""
    function = _compiled(expression, len(arguments))
    if not expression.has(sympy.Piecewise, ScalarFunction):
        return function(*arguments)
    with np.errstate(divide="ignore", invalid="ignore"):
        return function(*arguments)
