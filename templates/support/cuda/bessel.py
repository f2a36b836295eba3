"""Bessel functions of real order in double precision, by power series and by the trapezoidal rule
for integrals whose integrands decay on both sides (NIST Handbook of Mathematical Functions, 10.2,
10.9, 10.25 and 10.32). For such integrals of analytic functions, the error of this rule falls
exponentially with the number of points.

Errors are a few units in the last place of the function's magnitude near the argument.
"""

# mypy: allow-untyped-defs

import math

from .base import device

MIN_INTEGRAL_X = 30.0
"""Arguments beyond this, and beyond the square of the order, use the integral of I, not its
series."""
NEGLIGIBLE = 1e-17
"""Terms of a series below this, relative to the sum, are omitted."""
MIN_EXPONENT = -45.0
"""An integral ends where its integrand is below exp(MIN_EXPONENT), 3e-20, of its largest value."""
MAX_TERMS = 100000
"""Largest number of terms of a series, and of steps of a recurrence."""


@device
def cos_sin_pi(x):
    """cos(pi x) and sin(pi x), exact where they are 0."""
    remainder = x - 2.0 * math.floor(x / 2.0 + 0.5)
    cosine = 0.0 if abs(remainder) == 0.5 else math.cos(math.pi * remainder)
    sine = 0.0 if abs(remainder) == 1.0 else math.sin(math.pi * remainder)
    return cosine, sine


@device
def bessel_series(order, x, sign):
    """The power series of J (sign -1) or I (sign 1), for order >= 0 and x >= 0."""
    quarter = sign * x * x / 4.0
    if order < 150.0:
        term = (x / 2.0) ** order / math.gamma(order + 1.0)
    else:
        term = math.exp(order * math.log(x / 2.0) - math.lgamma(order + 1.0)) if x > 0 else 0.0
    total = term
    k = 0.0
    while abs(term) > NEGLIGIBLE * abs(total) and k < MAX_TERMS:
        k += 1.0
        term *= quarter / (k * (k + order))
        total += term
    return total


@device
def positive_i(order, x):
    """I of order >= 0 and x >= 0: its series, or the integral of exp(x cos t) cos(order t) over t
    from 0 to pi, divided by pi, where the other part of its integral representation is
    negligible."""
    if not (x > MIN_INTEGRAL_X and x > order * order):
        return bessel_series(order, x, 1.0)
    step = 0.4 / math.sqrt(x)
    total = 0.5
    fall = 0.0
    t = 0.0
    while fall > MIN_EXPONENT and t < 3.0:
        t += step
        half = math.sin(t / 2.0)
        fall = -2.0 * x * half * half
        total += math.exp(fall) * math.cos(order * t)
    half = math.exp(x / 2.0)
    return half * (total * step / math.pi) * half


@device
def positive_k(order, x):
    """K of order >= 0 and x >= 0: the integral of exp(-x cosh t) cosh(order t) over t from 0 on,
    as exp(shift - x) times that of exp(x - x cosh t - shift) cosh(order t)."""
    if x == 0 or x == math.inf:
        return math.inf if x == 0 else 0.0
    length = math.hypot(x, order)
    # the integrand may overflow where K does not. Rounded, its largest exponent leaves no rounding
    # error in shift - x
    shift = math.floor(order * (math.log(length + order) - math.log(x)) - (length - x))
    step = min(0.1, 0.5 / math.sqrt(length))
    total = 0.5 * math.exp(-shift)
    peak = 0.0
    exponent = 0.0
    t = 0.0
    while exponent > peak + MIN_EXPONENT and t < 1000.0:
        t += step
        half = math.sinh(t / 2.0)
        fall = -2.0 * x * half * half
        exponent = fall + order * t
        peak = max(peak, exponent)
        total += 0.5 * (math.exp(exponent - shift) + math.exp(fall - order * t - shift))
    return math.exp(shift - x) * (total * step)


@device
def parity(order):
    """1 for even integers, -1 for odd ones, 0 for other numbers."""
    remainder = order - 2.0 * math.floor(order / 2.0)
    return 1.0 if remainder == 0.0 else (-1.0 if remainder == 1.0 else 0.0)


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
    return positive_k(abs(order), x) if x >= 0 else math.nan


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
        going = fall + order * u > MIN_EXPONENT
    # the phase in two parts: a difference with x would lose digits
    c, s = cos_sin_pi(order / 2.0)
    cosine, sine = math.cos(x) * c + math.sin(x) * s, math.sin(x) * c - math.cos(x) * s
    size = step / math.pi
    return (size * (sine * real + cosine * imaginary), size * (sine * imaginary - cosine * real))


@device
def upward_recurrence(lower, upper, order, steps, x):
    """A solution of the recurrence of Bessel functions at `order` + `steps`, from `lower` at
    `order` and `upper` at `order` + 1; an infinite value stays infinite."""
    for _ in range(int(min(steps, MAX_TERMS))):
        if abs(lower) == math.inf:
            return lower
        lower, upper = upper, 2.0 * (order + 1.0) / x * upper - lower
        order += 1.0
    return lower


@device
def downward_recurrence(lower, upper, order, steps, x):
    """J at `order` + `steps` by downward recurrence (Miller's algorithm), scaled to J at `order`
    and `order` + 1, `lower` and `upper`."""
    k = math.ceil(steps + 30.0 + 10.0 * math.sqrt(order + steps))
    previous, current, result = 0.0, 1e-250, 0.0
    for _ in range(int(min(k, MAX_TERMS))):
        # `current` is proportional to J at `order` + k
        if k == steps:
            result = current
        previous, current = current, 2.0 * (order + k) / x * current - previous
        k -= 1.0
        if abs(current) > 1e250:
            previous, current, result = previous * 1e-250, current * 1e-250, result * 1e-250
    if abs(lower) > abs(upper):
        return result * (lower / current)
    return result * (upper / previous)


@device
def positive_jy(order, x):
    """J and Y of order >= 0 and x > 0, by recurrence from low orders."""
    fraction = order - math.floor(order)
    steps = order - fraction
    j, lower_j, y, lower_y = 0.0, 0.0, 0.0, 0.0
    for part in range(2):
        lower_j, lower_y = j, y
        j, y = low_order(fraction + part, x)
    y = upward_recurrence(lower_y, y, fraction, steps, x)
    if x * x <= 4.0 * (order + 1.0):
        j = bessel_series(order, x, -1.0)
    elif order <= x:
        j = upward_recurrence(lower_j, j, fraction, steps, x)
    else:
        j = downward_recurrence(lower_j, j, fraction, steps, x)
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
    j, y = 1.0 if order == 0 else 0.0, -math.inf
    if size > 0:
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
    def of_number(x):
        return function(order, x)

    return of_number


bessel_j0 = of_order(low_j, 0.0)
bessel_j1 = of_order(low_j, 1.0)
bessel_y0 = of_order(low_y, 0.0)
bessel_y1 = of_order(low_y, 1.0)
bessel_i0 = of_order(bessel_i, 0.0)
bessel_i1 = of_order(bessel_i, 1.0)
bessel_k0 = of_order(bessel_k, 0.0)
bessel_k1 = of_order(bessel_k, 1.0)
