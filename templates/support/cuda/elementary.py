"""Functions of single numbers as kernels of the device call them."""

# mypy: allow-untyped-defs

import math

from .base import device


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
