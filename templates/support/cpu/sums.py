"""Sums over all entries of arrays."""

# mypy: allow-untyped-defs, disable-error-code="call-arg, var-annotated"

from ..internals.functions import compiled
from ..internals.memory import shaped


@compiled(linked=True, fastmath={"reassoc"})
def sum_entries(array):
    """Add up all entries of a C-contiguous array."""
    entries = shaped(array, (array.size,))
    total = array.dtype.type(0)
    for i in range(entries.size):
        total += entries[i]
    return total


@compiled(linked=True, fastmath={"reassoc"})
def inner_product(x, y):
    """Compute the sum of x * y over all entries of two C-contiguous arrays of one shape."""
    x_entries, y_entries = shaped(x, (x.size,)), shaped(y, (y.size,))
    total = x.dtype.type(0)
    for i in range(x_entries.size):
        total += x_entries[i] * y_entries[i]
    return total
