"""The largest entry of each row, and its position."""

# mypy: allow-untyped-defs

from ..internals.functions import compiled
from .rows import row_maximum


@compiled()
def row_maxima(x, out):
    """out[s] = max(x[s, :]); nan if there is one."""
    for s in range(len(x)):
        out[s] = row_maximum(x, s)


@compiled()
def shares_of_maximum(x, out):
    """out[s, i] = 1/k if x[s, i] is one of the k largest entries of x[s, :], 0 if it is not; nan
    where an entry is nan."""
    stack, n = x.shape
    for s in range(stack):
        largest = row_maximum(x, s)
        total = out.dtype.type(0)
        for i in range(n):
            out[s, i] = x[s, i] == largest
            total += out[s, i]
        for i in range(n):
            out[s, i] /= total
