"""Functions of single numbers as kernels of the device call them."""

# mypy: allow-untyped-defs

import math

from derivatrix.templates.support.cuda.base import device

KERNELS = {
    "exp": "math.exp",
    "expm1": "math.expm1",
    "log": "math.log",
    "log1p": "math.log1p",
    "sqrt": "math.sqrt",
    "sin": "math.sin",
    "cos": "math.cos",
    "tan": "math.tan",
    "asin": "math.asin",
    "acos": "math.acos",
    "atan": "math.atan",
    "atan2": "math.atan2",
    "sinh": "math.sinh",
    "cosh": "math.cosh",
    "tanh": "math.tanh",
    "asinh": "math.asinh",
    "acosh": "math.acosh",
    "atanh": "math.atanh",
    "erf": "math.erf",
    "erfc": "math.erfc",
    "gamma": "math.gamma",
    "lgamma": "math.lgamma",
    "floor": "math.floor",
    "ceil": "math.ceil",
    "abs": "abs",
    "sign": "real_sign",
    "mod": "real_mod",
    "maximum": "real_maximum",
    "minimum": "real_minimum",
    "where": "cuda.selp",
}
"""Operator of a scalar (`plan.steps.Operate`) -> what kernels call. Functions of `math` do not
raise on the device: they return infinity or nan, and single precision for single precision."""


@device
def real_sign(x):
    """-1, 0 or 1; nan for nan."""
    return math.copysign(x**0, x) if x < 0 or x > 0 else abs(x)


@device
def real_mod(x, y):
    """What is left of x divided by y, of the sign of y, as `numpy.mod`."""
    rest = math.fmod(x, y)
    if rest == 0:
        return math.copysign(rest, y)
    return rest + y if (rest < 0) != (y < 0) else rest


@device
def real_maximum(x, y):
    """The larger number, nan if one is."""
    return x if x > y or x != x else y


@device
def real_minimum(x, y):
    """The smaller number, nan if one is."""
    return x if x < y or x != x else y
