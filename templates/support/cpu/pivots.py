"""Checks that numbers are positive, or not zero."""

# mypy: allow-untyped-defs

from ..internals.functions import compiled


@compiled()
def positive_pivot(x, out):
    """out (stack,) = x; False where a number is not positive."""
    for s in range(len(x)):
        out[s] = x[s]
        if not x[s] > 0:
            return False
    return True


@compiled()
def nonzero_pivot(x, out):
    """out (stack,) = x; False where a number is zero."""
    for s in range(len(x)):
        out[s] = x[s]
        if x[s] == 0:
            return False
    return True
