"""Elementary functions for device kernels."""

# mypy: allow-untyped-defs

import math

from .base import device


@device
def real_sign(x):
    """-1, 0 or 1; nan for nan."""
    return math.copysign(x**0, x) if x < 0 or x > 0 else abs(x)


@device
def real_mod(x, y):
    """The remainder of x / y with the sign of y, as `numpy.mod`."""
    remainder = math.fmod(x, y)
    if remainder == 0:
        return math.copysign(remainder, y)
    return remainder + y if (remainder < 0) != (y < 0) else remainder


@device
def real_maximum(x, y):
    """The larger number, nan if one is."""
    return x if x > y or x != x else y


@device
def real_minimum(x, y):
    """The smaller number, nan if one is."""
    return x if x < y or x != x else y
