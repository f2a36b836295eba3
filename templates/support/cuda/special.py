"""Special functions of single numbers, in double precision whatever the precision of the arrays."""

# mypy: allow-untyped-defs

import math

from .base import SIMULATED, device

if SIMULATED:
    from scipy.special import erfinv as inverse_error_function
else:
    from numba.cuda.libdevice import erfinv as inverse_error_function

BERNOULLI = (
    1 / 12,
    -1 / 720,
    1 / 30240,
    -1 / 1209600,
    1 / 47900160,
    -691 / 1307674368000,
    1 / 74724249600,
    -3617 / 10670622842880000,
)
"""B(2 j) / (2 j)! for j = 1, 2, ..., with Bernoulli's numbers B."""

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
    whole = math.floor(x)
    if x < 0 and x == whole:
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
def zeta_series(s, q):
    """The sum of (q + k)^-s over k = 0, 1, ... for q > 0, by Euler and Maclaurin's formula
    (NIST Handbook of Mathematical Functions, 25.11.28)."""
    total = 0.0
    while q < 10.0 + s:
        term = q**-s
        if term <= 1e-18 * total:
            return total
        total += term
        q += 1.0
    power = q**-s
    total += q ** (1.0 - s) / (s - 1.0) + power / 2.0
    power *= s / q
    step = 0.0
    for number in BERNOULLI:
        total += number * power
        power *= (s + step + 1.0) * (s + step + 2.0) / (q * q)
        step += 2.0
    return total


@device
def zeta(s, q):
    """Hurwitz's zeta function of s > 1; where q is negative only for integer s, else nan.

    The sum over all integers has period 1 in q, which takes a negative q to positive ones.
    """
    s = float(s)
    q = float(q)
    rest = q - math.floor(q)
    if not s > 1.0 or (not q > 0.0 and s != math.floor(s)) or q != q:
        return math.nan
    if not q > 0.0 and rest == 0.0:
        return math.inf
    first, second, third = q, 1.0, 1.0
    if not q > 0.0:
        first, second, third = rest, 1.0 - rest, 1.0 - q
    total = 0.0
    for part in range(1 if q > 0.0 else 3):
        point = first if part == 0 else (second if part == 1 else third)
        sign = 1.0 if part == 0 else (1.0 if part == 1 else -1.0)
        if part > 0 and s != 2.0 * math.floor(s / 2.0):
            sign = -sign
        total += sign * zeta_series(s, point)
    return total
