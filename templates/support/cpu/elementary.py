"""Exponentials, logarithms and hyperbolic functions without branches, so that loops over them are
vectorised.

Errors are below 2 units in the last place, 4 for the hyperbolic functions, for all numbers,
including infinite, subnormal ones and nan.
"""

# mypy: allow-untyped-defs

import math

from ..internals.arithmetic import choose_where, number_function, polynomial_value

EXP_SERIES = (
    0.5000000000000013,
    0.166666666666667,
    0.041666666666515,
    0.008333333333307196,
    0.0013888888947137003,
    0.00019841269917447965,
    2.4801489804504134e-05,
    2.7557216218816746e-06,
    2.763133359527906e-07,
    2.511789336414908e-08,
)
"""(exp(r) - 1 - r) / r^2 for |r| < log(2) / 2."""

SINGLE_EXP_SERIES = (
    0.5000000095374832,
    0.16666518604509858,
    0.04166620542259404,
    0.008368917782206314,
    0.0013950513382236438,
)

LOG_SERIES = (
    0.6666666666666736,
    0.39999999999400204,
    0.2857142874591507,
    0.22222198181958863,
    0.18183586082591816,
    0.15313459479160962,
    0.14802191699020364,
)
"""(2 artanh(s) - 2 s) / s^3 as a function of s^2, for s < 3 - 2 sqrt(2)."""

SINGLE_LOG_SERIES = (0.666667777373068, 0.3997735626443806, 0.2987713527732021)

LOG_TWO = (0.6931471803691238, 1.9082149292705877e-10)
SINGLE_LOG_TWO = (0.693145751953125, 1.428606765330187e-06)
"""log(2) in two parts, of which the first has so few digits that its product with an exponent is
exact (Cody and Waite)."""

ROOT_HALF_BITS = 0x3FE6A09E667F3BCD
SINGLE_ROOT_HALF_BITS = 0x3F3504F3
"""The bits of sqrt(1 / 2), where the mantissa's range begins."""


def split_exponent(x, addend=0.0):
    """Reduce to (k, r, t) with x + addend = k log(2) + r, |r| < 0.35 and exp(r) = 1 + (r + t).

    k is a number whose last bits hold the integer plus twice the bias of exponents."""
    high, low = LOG_TWO if x.double else SINGLE_LOG_TWO
    shift = 1.5 * 2.0**x.digits + 2 * x.bias
    k = x * 1.4426950408889634 + shift
    rounded = k - shift
    above = x - rounded * high
    below = rounded * low - addend
    r = above - below
    error = (above - r) - below
    return k, r, r * r * polynomial_value(r, EXP_SERIES if x.double else SINGLE_EXP_SERIES) + error


def quarter_exponential(x):
    """Reduce to (s, r, t) with exp(x) = 4 s (1 + (r + t)), for x at least a few units from
    overflow."""
    k, r, t = split_exponent(x)
    exponent = k.bits().integer("sub", k.bias + 2)
    return exponent.integer("shl", k.digits).number(), r, t


def quarter_less_one(x):
    """(exp(x) - 1) / 4."""
    scale, r, t = quarter_exponential(x)
    return (scale * r + (scale - 0.25)) + scale * t


def scaled_exponential(x, factor=1.0, addend=0.0):
    """exp(x + addend) * factor. The scale 2**k is applied in two halves, so that the result may be
    subnormal (then rounded once more) while both scales are normal numbers."""
    lowest, highest = (-746.0, 710.0) if x.double else (-104.0, 89.0)
    k, r, t = split_exponent(x.between(lowest, highest), addend)
    bits = k.bits()
    half = bits.integer("lshr", 1)
    halves = half, bits.integer("sub", half)
    scale_1, scale_2 = (part.integer("shl", k.digits).number() for part in halves)
    return factor * (1.0 + (r + t)) * scale_1 * scale_2


def write_expm1(x):
    lowest, highest = (-40.0, 710.0) if x.double else (-20.0, 89.0)
    result = 4.0 * quarter_less_one(x.between(lowest, highest))
    return choose_where(x.absolute(), "<", 1e-17 if x.double else 1e-9, x, result)


def write_tanh(x):
    size = x.absolute()
    ratio = quarter_less_one(2.0 * size.between(0.0, 20.0 if x.double else 10.0))
    result = ratio / (ratio + 0.5)
    return choose_where(size, "<", 1e-9 if x.double else 1e-5, x, result.of_sign(x))


def write_sinh(x):
    size = x.absolute()
    part = quarter_less_one(size.between(0.0, 710.5 if x.double else 89.5))
    result = 2.0 * (part + part / (4.0 * part + 1.0))
    return choose_where(size, "<", 1e-9 if x.double else 1e-5, x, result.of_sign(x))


def write_cosh(x):
    scale, r, t = quarter_exponential(x.absolute().between(0.0, 710.5 if x.double else 89.5))
    part = scale + scale * (r + t)
    return 2.0 * (part + 0.0625 / part)


def rounded_logarithm(x, error=None):
    """log(x + error) for a normal number x, where x + error rounds to x."""
    high, low = LOG_TWO if x.double else SINGLE_LOG_TWO
    bias_bits = x.bias << x.digits
    bits = x.bits()
    root_half = ROOT_HALF_BITS if x.double else SINGLE_ROOT_HALF_BITS
    exponent = bits.integer("add", bias_bits - root_half).integer("lshr", x.digits)
    biased = exponent.integer("or_", x.bias + x.digits << x.digits).number()
    k = biased - (2.0**x.digits + x.bias)
    mantissa = bits.integer("add", bias_bits).integer("sub", exponent.integer("shl", x.digits))
    f = mantissa.number() - 1.0
    s = f / (f + 2.0)
    z = s * s
    square = 0.5 * f * f
    tail = s * (square + z * polynomial_value(z, LOG_SERIES if x.double else SINGLE_LOG_SERIES))
    tail = tail + k * low
    if error is not None:
        tail = tail + error / x
    result = k * high - ((square - tail) - f)
    result = choose_where(x, "<", math.inf, result, x)
    return choose_where(x, ">", 0.0, result, choose_where(x, "==", 0.0, -math.inf, math.nan))


def write_log(x):
    tiny, factor, power = (2.0**-1022, 2.0**54, 54) if x.double else (2.0**-126, 2.0**25, 25)
    normal = choose_where(x, "<", tiny, x * factor, x)
    return rounded_logarithm(normal) - choose_where(x, "<", tiny, power * 0.6931471805599453, 0.0)


def write_log1p(x):
    total = 1.0 + x
    error = choose_where(x, ">", 1.0, 1.0 - (total - x), x - (total - 1.0))
    return choose_where(
        x.absolute(), "<", 1e-17 if x.double else 1e-9, x, rounded_logarithm(total, error)
    )


fast_exp = number_function(scaled_exponential)
fast_expm1 = number_function(write_expm1)
fast_log = number_function(write_log)
fast_log1p = number_function(write_log1p)
fast_sinh = number_function(write_sinh)
fast_cosh = number_function(write_cosh)
fast_tanh = number_function(write_tanh)
