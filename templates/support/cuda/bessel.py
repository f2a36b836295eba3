"""Bessel functions of real order, in double precision: by power series, by Hankel's asymptotic
expansions, and by quadrature of integrals where neither serves (NIST Handbook of Mathematical
Functions, 10.2, 10.9, 10.17, 10.25, 10.32 and 10.40).

Errors are a few units in the last place of the function's size around the argument.
"""

# mypy: allow-untyped-defs

import math

from .base import device

FAR = 30.0
"""Beyond that, and beyond the square of the order, asymptotic expansions are used."""
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
def hankel_sums(order, x, sign):
    """The sums of the even and of the odd terms of Hankel's expansion. sign: 1 where all terms of a
    sum have the same sign, -1 where the signs alternate."""
    term, even, odd = 1.0, 1.0, 0.0
    k = 0.0
    number = 1
    going = True
    while going and k < 200.0:
        k += 1.0
        factor = (4.0 * order * order - (2.0 * k - 1.0) * (2.0 * k - 1.0)) / (8.0 * k * x)
        term *= factor
        if number == 1:
            odd += term
        else:
            term *= sign
            even += term
        number = 1 - number
        going = abs(term) > ROUND and abs(factor) < 1.0
    return even, odd


@device
def is_asymptotic(order, x):
    """Whether asymptotic expansions are accurate for this order and argument."""
    return x > FAR and x > order * order


@device
def positive_i(order, x):
    """I of order >= 0 and x >= 0."""
    if is_asymptotic(order, x):
        even, odd = hankel_sums(order, x, 1.0)
        half = math.exp(x / 2.0)
        return half * ((even - odd) / math.sqrt(2.0 * math.pi * x)) * half
    return bessel_series(order, x, 1.0)


@device
def positive_k(order, x):
    """K of order >= 0 and x > 0: the integral of exp(-x cosh t) cosh(order t), by the trapezoidal
    rule."""
    if is_asymptotic(order, x):
        even, odd = hankel_sums(order, x, 1.0)
        return math.sqrt(math.pi / (2.0 * x)) * math.exp(-x) * (even + odd)
    step = min(0.1, 0.5 / math.sqrt(math.hypot(x, order)))
    total = 0.5 * math.exp(-x)
    most = -x
    exponent = -x
    t = 0.0
    while exponent > most - 45.0 and t < 1000.0:
        t += step
        fall = -x * math.cosh(t)
        exponent = fall + order * t
        most = max(most, exponent)
        total += 0.5 * (math.exp(exponent) + math.exp(fall - order * t))
    return total * step


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
def oscillating_integrals(order, x):
    """The integrals of the cosine and of the sine of x sin t - order t over t from 0 to pi, by
    quadrature with double exponentials."""
    cosines, sines = 0.0, 0.0
    for k in range(-128, 129):
        u = k / 40.0
        bend = math.pi / 2.0 * math.sinh(u)
        weight = math.cosh(u) / (math.cosh(bend) * math.cosh(bend))
        # from the nearer end
        near = math.pi / (1.0 + math.exp(2.0 * abs(bend)))
        angle = near if u < 0 else math.pi - near
        phase = x * math.sin(near) - order * angle
        cosines += weight * math.cos(phase)
        sines += weight * math.sin(phase)
    scale = math.pi * math.pi / 4.0 / 40.0
    return cosines * scale, sines * scale


@device
def decaying_integrals(order, x):
    """The integrals of exp(-x sinh t - order t) and of exp(-x sinh t + order t) over t from 0 on,
    by the trapezoidal rule for t = log(1 + exp(u))."""
    falling, rising = 0.0, 0.0
    step = 0.125
    u = -40.0
    going = True
    while going and u < 1000.0:
        power = math.exp(-abs(u))
        t = max(u, 0.0) + math.log1p(power)
        weight = (1.0 if u > 0 else power) / (1.0 + power)
        fall = -x * math.sinh(t) if t < 709.0 else -math.inf
        falling += weight * math.exp(fall - order * t)
        rising += weight * math.exp(fall + order * t)
        going = fall + order * t > -45.0
        u += step
    return falling * step, rising * step


@device
def low_order(order, x):
    """J and Y of an order from 0 to 2, for x > 0."""
    if x > FAR:
        even, odd = hankel_sums(order, x, -1.0)
        # the phase x - (order / 2 + 1 / 4) pi in two parts, lest digits of x are lost
        c, s = cos_sin_pi(order / 2.0 + 0.25)
        cos, sin = math.cos(x), math.sin(x)
        cosine, sine = cos * c + sin * s, sin * c - cos * s
        size = math.sqrt(2.0 / (math.pi * x))
        return size * (even * cosine - odd * sine), size * (even * sine + odd * cosine)
    cosines, sines = oscillating_integrals(order, x)
    falling, rising = decaying_integrals(order, x)
    c, s = cos_sin_pi(order)
    return (cosines - s * falling) / math.pi, (sines - rising - c * falling) / math.pi


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
