"""Special functions as plain Python, which the targets' support compiles."""

# mypy: allow-untyped-defs

import math

import numpy as np

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


def hurwitz_zeta(s, q):
    """Hurwitz's zeta function, the sum of (q + k)^-s over k = 0, 1, ..., for s > 1; nan for a
    negative q unless s is an integer.

    For q > 0 by Euler and Maclaurin's formula (NIST Handbook of Mathematical Functions, 25.11.28).
    The sum over all integers k has period 1 in q: it relates the value at a negative q to values at
    the positive f = q - floor(q), 1 - f and 1 - q."""
    s, q = np.float64(s), np.float64(q)
    is_positive = q > 0.0
    if not s > 1.0 or q != q or not (is_positive or s % 1.0 == 0.0):
        return math.nan
    fraction = q % 1.0  # Numba's math.floor overflows, and CUDA has no np.floor
    if not is_positive and fraction == 0.0:
        return math.inf
    total = 0.0
    for part in range(1 if is_positive else 3):
        point = q if is_positive else fraction
        sign = 1.0
        if part > 0:
            point = 1.0 - fraction if part == 1 else 1.0 - q
            sign = 1.0 if (s % 2.0 == 0.0) == (part == 1) else -1.0
        series = 0.0
        power = point**-s
        # for a large s, terms become negligible before the formula applies
        while point < 10.0 + s and power > 1e-18 * series:
            series += power
            point += 1.0
            power = point**-s
        if point >= 10.0 + s:
            series += point ** (1.0 - s) / (s - 1.0) + power / 2.0
            power *= s / point
            order = s
            for coefficient in BERNOULLI:
                series += coefficient * power
                power *= (order + 1.0) * (order + 2.0) / (point * point)
                order += 2.0
        total += sign * series
    return total
