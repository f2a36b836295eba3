"""Elementary functions without branches, which loops vectorise; libm's are called one by one."""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

from numba import njit, types

from tests.benchmarks.specialist.compiled import exact, intrinsic

LOG2_E = 1.4426950408889634
LOG_2_HIGH, LOG_2_LOW = 0.6931471803691238, 1.9082149292705877e-10
TWO_OVER_PI = 0.6366197723675814
HALF_PI_HIGH, HALF_PI_MIDDLE, HALF_PI_LOW = (
    1.5707963267341256,
    6.077100506303966e-11,
    2.0222662487959506e-21,
)
MAGIC = 6755399441055744.0
"""1.5 · 2⁵²: a small number added to it is rounded to an integer, in the low bits."""


@intrinsic
def bits(context: Any, number: Any) -> Any:
    """The bits of a float64, as an integer."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], context.get_value_type(types.int64))

    return types.int64(types.float64), generate


@intrinsic
def number(context: Any, bits: Any) -> Any:
    """The float64 with these bits."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], context.get_value_type(types.float64))

    return types.float64(types.int64), generate


@exact
def vexp(x):
    """exp(x), right to about 2 units in the last place; x beyond ±708 counts as that."""
    x = min(max(x, -708.0), 708.0)
    shifted = x * LOG2_E + MAGIC
    whole = shifted - MAGIC
    r = (x - whole * LOG_2_HIGH) - whole * LOG_2_LOW
    p = 2.5110049204818658e-08
    p = p * r + 2.763265472252779e-07
    p = p * r + 2.755724088722987e-06
    p = p * r + 2.4801485441561313e-05
    p = p * r + 0.00019841269890076403
    p = p * r + 0.0013888888952352863
    p = p * r + 0.008333333333319589
    p = p * r + 0.04166666666648795
    p = p * r + 0.1666666666666668
    p = p * r + 0.5000000000000019
    p = p * r + 1.0
    p = p * r + 1.0
    return p * number((bits(shifted) + 1023) << 52)


@exact
def vsincos(x):
    """sin(x) and cos(x), for |x| below about 10⁵."""
    shifted = x * TWO_OVER_PI + MAGIC
    whole = shifted - MAGIC
    quarter: Any = bits(shifted)
    r = ((x - whole * HALF_PI_HIGH) - whole * HALF_PI_MIDDLE) - whole * HALF_PI_LOW
    z = r * r
    s = 1.58962301576546568060e-10
    s = s * z - 2.50507477628578072866e-08
    s = s * z + 2.75573136213857245213e-06
    s = s * z - 1.98412698295895385996e-04
    s = s * z + 8.33333333332211858878e-03
    s = s * z - 1.66666666666666307295e-01
    s = s * z * r + r
    c = -1.13585365213876817300e-11
    c = c * z + 2.08757008419747316778e-09
    c = c * z - 2.75573141792967388112e-07
    c = c * z + 2.48015872888517045348e-05
    c = c * z - 1.38888888888730564116e-03
    c = c * z + 4.16666666666665929218e-02
    c = c * z * z - 0.5 * z + 1.0
    odd = quarter & 1
    sine = c if odd else s
    cosine = s if odd else c
    sine = -sine if quarter & 2 else sine
    cosine = -cosine if (quarter + 1) & 2 else cosine
    return sine, cosine


@exact
def vtanh(x):
    """tanh(x), right to an absolute error of about 2⁻⁵²."""
    return 1.0 - 2.0 / (vexp(2.0 * x) + 1.0)


@njit(cache=True, error_model="numpy", fastmath={"nnan", "nsz", "reassoc"}, forceinline=True)
def highest(row):
    """The largest entry; that none is NaN is what lets the compiler vectorise it."""
    top = row[0]
    for j in range(len(row)):
        top = max(top, row[j])
    return top
