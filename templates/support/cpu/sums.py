"""Sums over all entries of arrays."""

# mypy: allow-untyped-defs, disable-error-code="call-arg, var-annotated"

from ..internals.functions import compiled
from ..internals.memory import shaped


@compiled(linked=True, fastmath={"reassoc"})
def sum_entries(array):
    """The sum of all entries of a C-contiguous array."""
    entries = shaped(array, (array.size,))
    total = array.dtype.type(0)
    for i in range(entries.size):
        total += entries[i]
    return total


@compiled(linked=True, fastmath={"reassoc"})
def inner_product(left, right):
    """The sum of left * right over all entries of two C-contiguous arrays of one shape."""
    first, second = shaped(left, (left.size,)), shaped(right, (right.size,))
    total = left.dtype.type(0)
    for i in range(first.size):
        total += first[i] * second[i]
    return total
