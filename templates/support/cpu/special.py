"""Special functions of a number, in double precision also for float32 arrays. Functions `scipy_...`
are SciPy's compiled ones."""

# mypy: allow-untyped-defs

import numpy as np

from ..common.series import BERNOULLI
from ..internals.functions import compiled, scipy_special

scipy_psi = scipy_special("psi", 1)
scipy_erfinv = scipy_special("erfinv", 1)
scipy_j0 = scipy_special("j0", 1)
scipy_j1 = scipy_special("j1", 1)
scipy_jv = scipy_special("jv", 2)
scipy_y0 = scipy_special("y0", 1)
scipy_y1 = scipy_special("y1", 1)
scipy_yv = scipy_special("yv", 2)
scipy_i0 = scipy_special("i0", 1)
scipy_i1 = scipy_special("i1", 1)
scipy_iv = scipy_special("iv", 2)
scipy_k0 = scipy_special("k0", 1)
scipy_k1 = scipy_special("k1", 1)
scipy_kv = scipy_special("kv", 2)


@compiled(linked=True)
def zeta_series(s, q):
    """The sum of (q + k)^-s over k = 0, 1, ... for q > 0, by Euler and Maclaurin's formula
    (NIST Handbook of Mathematical Functions, 25.11.28)."""
    total = 0.0
    while q < 10 + s:
        total += q**-s
        q += 1
    power = q**-s
    total += q ** (1 - s) / (s - 1) + power / 2
    power *= s / q
    for j, number in enumerate(BERNOULLI):
        total += number * power
        power *= (s + 2 * j + 1) * (s + 2 * j + 2) / (q * q)
    return total


@compiled(linked=True)
def zeta(s, q):
    """Hurwitz's zeta function for s > 1; nan for a negative q unless s is an integer.

    The sum over all integers, negative ones included, has period 1 in q: it relates the value at a
    negative q to values at positive ones.
    """
    s, q = np.float64(s), np.float64(q)
    if s > 1 and q > 0:
        return zeta_series(s, q)
    if s <= 1 or s != np.floor(s):
        return np.nan
    fraction = q - np.floor(q)
    if fraction == 0:
        return np.inf
    sign = 1.0 if s % 2 == 0 else -1.0
    return zeta_series(s, fraction) + sign * (zeta_series(s, 1 - fraction) - zeta_series(s, 1 - q))
