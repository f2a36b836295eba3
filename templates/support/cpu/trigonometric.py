"""Sine, cosine and tangent without branches, so that loops over them are vectorised.

Payne and Hanek's method reduces an argument of any size: it multiplies it by only those digits of
2 / pi that contribute to the remainder. Errors are below 2 units in the last place, 4 for the
tangent.
"""

# mypy: allow-untyped-defs

import math

from ..internals.arithmetic import (
    choose_odd,
    choose_where,
    number_function,
    polynomial_value,
    table_entry,
)

SINE_SERIES = (
    -0.16666666666666632,
    0.008333333333322413,
    -0.0001984126982980796,
    2.7557313691958445e-06,
    -2.5050758120448525e-08,
    1.5896795908439655e-10,
)
"""(sin(r) - r) / r^3 as a function of r^2, for |r| < pi / 4."""

SINGLE_SINE_SERIES = (-0.16666654936575484, 0.00833217768368396, -0.00019517234473062924)

COSINE_SERIES = (
    0.0416666666666666,
    -0.0013888888888874125,
    2.4801587289482208e-05,
    -2.755731435232227e-07,
    2.0875723269978417e-09,
    -1.135964756180929e-11,
)
"""(cos(r) - 1 + r^2 / 2) / r^4 as a function of r^2."""

SINGLE_COSINE_SERIES = (0.0416666468538744, -0.0013887366896081416, 2.4438378771242773e-05)

HALF_PI = (1.5707963267948966, 6.123233995736766e-17)


def inverse_arctangent(n, unit):
    """unit * arctan(1 / n), in integers."""
    total, power, k = 0, unit // n, 1
    while power:
        total += power // k if k % 4 == 1 else -(power // k)
        power //= n * n
        k += 2
    return total


def digits_of_two_over_pi(rows, step, parts, scale):
    """Make a table with `rows` rows of `parts` doubles, times 2^scale: row j holds the bits of 2 /
    pi from bit `step * j` on, 53 bits in each double."""
    bits = rows * step + 256
    unit = 1 << bits
    pi = 16 * inverse_arctangent(5, unit) - 4 * inverse_arctangent(239, unit)
    numbers = []
    for row in range(rows):
        remainder = (2 * unit * unit // pi) % (unit >> step * row)
        for _ in range(parts):
            lower_bits = remainder.bit_length() - 53
            numbers.append(math.ldexp(remainder >> lower_bits, lower_bits - bits + scale))
            remainder %= 1 << lower_bits
    return numbers


TWO_OVER_PI = digits_of_two_over_pi(31, 32, 4, 128)
SINGLE_TWO_OVER_PI = digits_of_two_over_pi(7, 16, 2, 0)


def digits_row(size, lowest, highest, step):
    """Return the row of the table for a positive double: its exponent, clipped to `lowest` and
    `highest`, minus `lowest`, divided by 2^step."""
    clipped = choose_where(size, "<", 2.0**lowest, 2.0**lowest, size)
    bits = choose_where(size, "<", 2.0**highest, clipped, 2.0**highest).bits()
    return bits.integer("lshr", 52).integer("sub", 1023 + lowest).integer("lshr", step)


def sum_exactly(a, b):
    """Compute a + b and its rounding error, exactly (Knuth's two-sum)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def nearest_whole(x):
    """Return the integer nearest to x, as a double and in the last bits of a machine integer."""
    shifted = x + 1.5 * 2.0**52
    return shifted - 1.5 * 2.0**52, shifted.bits()


def reduce_angle(size):
    """Reduce a positive double to (k, r, t) with size = k pi / 2 + (r + t), k modulo 4. The digits
    suffice even for the double closest to a multiple of pi / 2, which is 2^-62 from it."""
    place = digits_row(size, 54, 1023, 5).integer("shl", 2)
    digits = [
        table_entry("two_over_pi", TWO_OVER_PI, place.integer("add", part)) for part in range(4)
    ]
    x = size.times(2.0**-128)
    products = [x.times(part) for part in digits]
    tails = [x.rounding_error(digits[k], products[k]) for k in range(3)]
    leading = products[0] - 4.0 * (products[0] * 0.25).rounded()
    nearest, k = nearest_whole(leading + (tails[0] + products[1]))
    a, b = sum_exactly(leading - nearest, tails[0])
    c, d = sum_exactly(a, products[1])
    e, f = sum_exactly(tails[1], products[2])
    turn, tail = sum_exactly(c, e)
    tail = tail + ((b + d) + f + (tails[2] + products[3]))
    r = turn.times(HALF_PI[0])
    return k, r, turn.rounding_error(HALF_PI[0], r) + (turn * HALF_PI[1] + tail * HALF_PI[0])


def reduce_single_angle(size):
    """Reduce a single, given as a positive double, to (k, r) with size = k pi / 2 + r, k modulo
    4."""
    place = digits_row(size, 25, 127, 4).integer("shl", 1)
    digits = [
        table_entry("single_two_over_pi", SINGLE_TWO_OVER_PI, place.integer("add", part))
        for part in range(2)
    ]
    product = size.times(digits[0])
    tail = size.rounding_error(digits[0], product)
    nearest, k = nearest_whole(product)
    return k, ((product - nearest) + (tail + size * digits[1])) * HALF_PI[0]


def circular_parts(x):
    """Reduce to (k, sin(r), cos(r)), doubles, with |x| = k pi / 2 + r and |r| <= pi / 4."""
    if x.double:
        k, r, t = reduce_angle(x.absolute())
    else:
        k, r = reduce_single_angle(x.in_double().absolute())
        t = 0.0 * r
    sine = SINE_SERIES if x.double else SINGLE_SINE_SERIES
    cosine = COSINE_SERIES if x.double else SINGLE_COSINE_SERIES
    z = r * r
    half = 0.5 * z
    cosine_head = 1.0 - half
    sin = r + (t * cosine_head + r * z * polynomial_value(z, sine))
    cos = cosine_head + (
        ((1.0 - cosine_head) - half) + (z * z * polynomial_value(z, cosine) - r * t)
    )
    return k, sin, cos


def in_precision(x, result):
    return result if x.double else result.in_single()


def in_quadrant(k, result):
    """Negate the result in the third and fourth quadrant."""
    sign = k.integer("and_", 2).integer("shl", 62)
    return result.bits().integer("xor", sign).number()


def odd_function(x, result):
    """Return the value of an odd function at x from its value at |x|; x itself where that is
    tiny."""
    result = result.bits().integer("xor", x.bits().integer("and_", x.sign)).number()
    return choose_where(x.absolute(), "<", 1e-9 if x.double else 1e-5, x, result)


def write_sin(x):
    k, sin, cos = circular_parts(x)
    return odd_function(x, in_precision(x, in_quadrant(k, choose_odd(k, cos, sin))))


def write_cos(x):
    k, sin, cos = circular_parts(x)
    return in_precision(x, in_quadrant(k.integer("add", 1), choose_odd(k, sin, cos)))


def write_tan(x):
    k, sin, cos = circular_parts(x)
    ratio = choose_odd(k, 0.0 - cos, sin) / choose_odd(k, sin, cos)
    return odd_function(x, in_precision(x, ratio))


fast_sin = number_function(write_sin)
fast_cos = number_function(write_cos)
fast_tan = number_function(write_tan)
