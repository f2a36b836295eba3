"""Special functions of single numbers, in double precision whatever the precision of the arrays.

Those called `scipy_...` are SciPy's own compiled functions.
"""

# mypy: allow-untyped-defs

import importlib
import re

import numpy as np
from numba import types
from numba.core import cgutils
from numba.core.codegen import ll  # type: ignore[attr-defined]
from numba.extending import get_cython_function_address, intrinsic

from .base import LLVM, compiled

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


def special(name, count):
    """SciPy's special function `name` of `count` (one or two) numbers."""
    library = "scipy.special.cython_special"
    variant = re.compile(rf"(__pyx_fuse_\d+)?{name}")
    signature = f"double ({'double, ' * count}int"  # the last one is Cython's own
    found = next(
        entry
        for entry, capsule in importlib.import_module(library).__pyx_capi__.items()
        if variant.fullmatch(entry) and signature in repr(capsule)
    )
    symbol = f"derivatrix_special_{name}"
    ll.add_symbol(symbol, get_cython_function_address(library, found))

    def generate(context, builder, types_given, values):
        double, integer = LLVM.DoubleType(), LLVM.IntType(32)
        kind = LLVM.FunctionType(double, [double] * count + [integer])
        function = cgutils.get_or_insert_function(builder.module, kind, symbol)
        numbers = [
            context.cast(builder, value, given, types.float64)
            for value, given in zip(values, types_given.args, strict=True)
        ]
        return builder.call(function, [*numbers, LLVM.Constant(integer, 0)])

    @intrinsic
    def of_one(context, x):
        return types.float64(x), generate

    @intrinsic
    def of_two(context, order, x):
        return types.float64(order, x), generate

    return of_one if count == 1 else of_two


scipy_psi = special("psi", 1)
scipy_erfinv = special("erfinv", 1)
scipy_j0 = special("j0", 1)
scipy_j1 = special("j1", 1)
scipy_jv = special("jv", 2)
scipy_y0 = special("y0", 1)
scipy_y1 = special("y1", 1)
scipy_yv = special("yv", 2)
scipy_i0 = special("i0", 1)
scipy_i1 = special("i1", 1)
scipy_iv = special("iv", 2)
scipy_k0 = special("k0", 1)
scipy_k1 = special("k1", 1)
scipy_kv = special("kv", 2)


@compiled()
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


@compiled()
def zeta(s, q):
    """Hurwitz's zeta function of s > 1; where q is negative only for integer s, else nan.

    The sum over all integers has period 1 in q, which takes a negative q to positive ones.
    """
    s, q = np.float64(s), np.float64(q)
    if s > 1 and q > 0:
        return zeta_series(s, q)
    if s <= 1 or s != np.floor(s):
        return np.nan
    rest = q - np.floor(q)
    if rest == 0:
        return np.inf
    sign = 1.0 if s % 2 == 0 else -1.0
    return zeta_series(s, rest) + sign * (zeta_series(s, 1 - rest) - zeta_series(s, 1 - q))
