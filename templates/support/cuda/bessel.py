"""Bessel functions of real order, in double precision: by power series and by the trapezoidal rule
for integrals of functions that fall off on both sides (NIST Handbook of Mathematical Functions,
10.2, 10.9, 10.25 and 10.32).

Errors are a few units in the last place of the function's size around the argument.
"""

# mypy: allow-untyped-defs

import math

from .base import device

FAR = 30.0
"""Beyond that, and beyond the square of the order, the integral of I is used, not its series."""
ROUND = 1e-17
MOST_TERMS = 100000


@device
def cos_sin_pi(x):
    """cos(pi x) and sin(pi x), exact where they are 0."""
    rest = x - 2.0 * math.floor(x / 2.0 + 0.5)
    cosine = 0.0 if abs(rest) == 0.5 else math.cos(math.pi * rest)
    sine = 0.0 if abs(rest) == 1.0 else math.sin(math.pi * rest)
    return cosine, sine


@device
def bessel_series(order, x, sign):
    """The power series of J, for the sign -1, or of I, for the sign 1, of order >= 0 and x >= 0."""
    quarter = sign * x * x / 4.0
    if order < 150.0:
        term = (x / 2.0) ** order / math.gamma(order + 1.0)
    else:
        term = math.exp(order * math.log(x / 2.0) - math.lgamma(order + 1.0)) if x > 0 else 0.0
    total = term
    k = 0.0
    while abs(term) > ROUND * abs(total) and k < MOST_TERMS:
        k += 1.0
        term *= quarter / (k * (k + order))
        total += term
    return total


@device
def positive_i(order, x):
    """I of order >= 0 and x >= 0: its series, or, where another part is negligible, the integral of
    exp(x cos t) cos(order t) over t from 0 to pi, divided by pi."""
    if not (x > FAR and x > order * order):
        return bessel_series(order, x, 1.0)
    step = 0.4 / math.sqrt(x)
    total = 0.5
    fall = 0.0
    t = 0.0
    while fall > -45.0 and t < 3.0:
        t += step
        half = math.sin(t / 2.0)
        fall = -2.0 * x * half * half
        total += math.exp(fall) * math.cos(order * t)
    half = math.exp(x / 2.0)
    return half * (total * step / math.pi) * half


@device
def positive_k(order, x):
    """K of order >= 0 and x > 0: the integral of exp(-x cosh t) cosh(order t) over t from 0 on."""
    step = min(0.1, 0.5 / math.sqrt(math.hypot(x, order)))
    total = 0.5
    most = 0.0
    exponent = 0.0
    t = 0.0
    while exponent > most - 45.0 and t < 1000.0:
        t += step
        half = math.sinh(t / 2.0)
        fall = -2.0 * x * half * half
        exponent = fall + order * t
        most = max(most, exponent)
        total += 0.5 * (math.exp(exponent) + math.exp(fall - order * t))
    return math.exp(-x) * (total * step)


@device
def parity(order):
    """1 for even integers, -1 for odd ones, 0 for other numbers."""
    rest = order - 2.0 * math.floor(order / 2.0)
    return 1.0 if rest == 0.0 else (-1.0 if rest == 1.0 else 0.0)


@device
def bessel_i(order, x):
    """The modified Bessel function of the first kind; nan at negative numbers if the order is
    not an integer."""
    order = float(order)
    x = float(x)
    sign = parity(order)
    if x < 0 and sign == 0:
        return math.nan
    result = positive_i(abs(order), abs(x))
    if order < 0 and sign == 0:
        _, sine = cos_sin_pi(-order)
        result += 2.0 / math.pi * sine * positive_k(-order, x)
    return result * sign if x < 0 else result


@device
def bessel_k(order, x):
    """The modified Bessel function of the second kind; infinite at zero, nan below."""
    order = float(order)
    x = float(x)
    if not x > 0:
        return math.inf if x == 0 else math.nan
    return positive_k(abs(order), x)


@device
def low_order(order, x):
    """J and Y of an order from 0 to 2, for x > 0.

    J + i Y = exp(i (x - order pi / 2)) / (i pi) times the integral of exp(-x sinh u tanh u)
    exp(-order (u + i g)) (1 + i / cosh u) over all u, g = 2 atan(tanh(u / 2)): that of
    exp(x sinh t - order t) along the line where the exponential's phase is x.
    """
    step = min(0.0625, 0.4 / math.sqrt(x))
    real, imaginary = 1.0, 1.0
    going = True
    u = 0.0
    while going and u < 1000.0:
        u += step
        share = 1.0 / math.cosh(u)
        angle = order * 2.0 * math.atan(math.tanh(u / 2.0))
        fall = -x * math.sinh(u) * math.tanh(u)
        falling, rising = math.exp(fall - order * u), math.exp(fall + order * u)
        even, odd = (rising + falling) * math.cos(angle), (rising - falling) * math.sin(angle)
        real += even - share * odd
        imaginary += share * even + odd
        going = fall + order * u > -45.0
    # the phase in two parts, lest digits of x are lost
    c, s = cos_sin_pi(order / 2.0)
    cosine, sine = math.cos(x) * c + math.sin(x) * s, math.sin(x) * c - math.cos(x) * s
    size = step / math.pi
    return (
        size * (sine * real + cosine * imaginary),
        size * (sine * imaginary - cosine * real),
    )


@device
def upward_recurrence(first, second, low, steps, x):
    """A solution of the recurrence of Bessel functions `steps` orders up, from those of orders
    `low` and `low` + 1; an infinite one stays so."""
    for _ in range(int(min(steps, MOST_TERMS))):
        if abs(first) == math.inf:
            return first
        first, second = second, 2.0 * (low + 1.0) / x * second - first
        low += 1.0
    return first


@device
def downward_recurrence(first, second, low, steps, x):
    """J `steps` orders up from `low`, by recurrence downwards (Miller's algorithm), from J of the
    orders `low` and `low` + 1."""
    place = math.ceil(steps + 30.0 + 10.0 * math.sqrt(low + steps))
    above, here, wanted = 0.0, 1e-250, 0.0
    for _ in range(int(min(place, MOST_TERMS))):
        # `here` is of order low + place
        if place == steps:
            wanted = here
        above, here = here, 2.0 * (low + place) / x * here - above
        place -= 1.0
        if abs(here) > 1e250:
            above, here, wanted = above * 1e-250, here * 1e-250, wanted * 1e-250
    if abs(first) > abs(second):
        return wanted * (first / here)
    return wanted * (second / above)


@device
def positive_jy(order, x):
    """J and Y of order >= 0 and x > 0, by recurrence from low orders."""
    low = order - math.floor(order)
    steps = order - low
    j, first_j, y, first_y = 0.0, 0.0, 0.0, 0.0
    for part in range(2):
        first_j, first_y = j, y
        j, y = low_order(low + part, x)
    y = upward_recurrence(first_y, y, low, steps, x)
    if x * x <= 4.0 * (order + 1.0):
        j = bessel_series(order, x, -1.0)
    elif order <= x:
        j = upward_recurrence(first_j, j, low, steps, x)
    else:
        j = downward_recurrence(first_j, j, low, steps, x)
    return j, y


@device
def bessel_j(order, x):
    """The Bessel function of the first kind; nan at negative numbers if the order is no
    integer."""
    order = float(order)
    x = float(x)
    size = abs(x)
    sign = parity(order)
    if not size < math.inf or (x < 0 and sign == 0):
        return 0.0 if x == math.inf else math.nan
    if size == 0:
        return 1.0 if order == 0 else (0.0 if order > 0 or sign != 0 else math.nan)
    j, y = positive_jy(abs(order), size)
    if order < 0 and sign == 0:
        cosine, sine = cos_sin_pi(-order)
        j = cosine * j - sine * y
    return j * sign if sign != 0 and (x < 0) != (order < 0) else j


@device
def bessel_y(order, x):
    """The Bessel function of the second kind; -inf at zero, nan below."""
    order = float(order)
    x = float(x)
    if not 0 < x < math.inf:
        return -math.inf if x == 0 else (0.0 if x > 0 else math.nan)
    j, y = positive_jy(abs(order), x)
    if order < 0:
        cosine, sine = cos_sin_pi(-order)
        y = cosine * y if sine == 0 else sine * j + cosine * y
    return y


@device
def low_j(order, x):
    """J of order 0 or 1."""
    x = float(x)
    size = abs(x)
    if not size < math.inf:
        return 0.0 if size > 0 else math.nan
    if size < 1.0:
        j = bessel_series(order, size, -1.0)
    else:
        j, _ = low_order(order, size)
    return -j if order > 0 and x < 0 else j


@device
def low_y(order, x):
    """Y of order 0 or 1."""
    x = float(x)
    if not 0 < x < math.inf:
        return -math.inf if x == 0 else (0.0 if x > 0 else math.nan)
    _, y = low_order(order, x)
    return y


def of_order(function, order):
    """A Bessel function of one order."""

    @device
    def fixed(x):
        return function(order, x)

    return fixed


bessel_j0 = of_order(low_j, 0.0)
bessel_j1 = of_order(low_j, 1.0)
bessel_y0 = of_order(low_y, 0.0)
bessel_y1 = of_order(low_y, 1.0)
bessel_i0 = of_order(bessel_i, 0.0)
bessel_i1 = of_order(bessel_i, 1.0)
bessel_k0 = of_order(bessel_k, 0.0)
bessel_k1 = of_order(bessel_k, 1.0)
