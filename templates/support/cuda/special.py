"""Special functions of a number, in double precision also for float32 arrays."""

# mypy: allow-untyped-defs

import math

from ..common.series import hurwitz_zeta
from .base import SIMULATED, device

if SIMULATED:
    from scipy.special import erfcx as scaled_complement
    from scipy.special import erfinv as inverse_error_function
else:
    from numba.cuda.libdevice import erfcx as scaled_complement
    from numba.cuda.libdevice import erfinv as inverse_error_function

DIGAMMA_SERIES = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12, 3617 / 8160)
"""-B(2 j) / (2 j) for j = 1, 2, ..."""


@device
def digamma_of_large(x):
    """digamma(x) for x >= 10 (NIST Handbook of Mathematical Functions, 5.11.2)."""
    square = 1.0 / (x * x)
    total = 0.0
    power = square
    for number in DIGAMMA_SERIES:
        total += number * power
        power *= square
    return math.log(x) - 0.5 / x + total


@device
def digamma(x):
    """The logarithmic derivative of the gamma function; nan at negative integers."""
    x = float(x)
    floor = math.floor(x)
    if x < 0 and x == floor:
        return math.nan
    if x == 0:
        return math.copysign(math.inf, -x)
    result = 0.0
    if x < 0:
        result = -math.pi / math.tan(math.pi * (x - math.floor(x + 0.5)))
        x = 1.0 - x
    while x < 10.0:
        result -= 1.0 / x
        x += 1.0
    return result + digamma_of_large(x)


@device
def erfinv(y):
    """The inverse of the error function, by CUDA's library."""
    return inverse_error_function(float(y))


@device
def scaled_normcdf(x):
    """The normal distribution function at x, times exp(min(x, 0)^2 / 2)."""
    size = abs(float(x)) / math.sqrt(2.0)
    return 0.5 * scaled_complement(size) if x < 0 else 1.0 - 0.5 * math.erfc(size)


zeta = device(hurwitz_zeta)
