"""What Newton's iteration for an equation measures."""

# mypy: allow-untyped-defs

import numpy as np

from ..internals.functions import compiled


@compiled()
def largest(vector):
    """The largest magnitude; nan if there is one."""
    found = vector.dtype.type(0)
    for value in vector:
        if abs(value) > found or value != value:
            found = abs(value)
    return found


@compiled()
def close(out):
    """How long, relative to the unknown, a step may be that rounding alone prevents from
    improving the residual: the square root of the precision."""
    return out.dtype.type(np.sqrt(np.finfo(out.dtype).eps))
