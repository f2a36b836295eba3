"""Sums over all entries of arrays, sums of arrays, and sums of rows."""

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


@compiled(linked=True)
def add_multiple(number, source, target):
    """target += number * source, for C-contiguous arrays of one shape."""
    entries, results = shaped(source, (source.size,)), shaped(target, (target.size,))
    for i in range(results.size):
        results[i] += number * entries[i]


@compiled(linked=True)
def set_multiple(number, source, target):
    """target = number * source, for C-contiguous arrays of one shape."""
    entries, results = shaped(source, (source.size,)), shaped(target, (target.size,))
    for i in range(results.size):
        results[i] = number * entries[i]


@compiled(linked=True)
def set_combination(a, x, b, y, target):
    """target = a * x + b * y, for C-contiguous arrays of one shape."""
    x_entries, y_entries = shaped(x, (x.size,)), shaped(y, (y.size,))
    results = shaped(target, (target.size,))
    for i in range(results.size):
        results[i] = a * x_entries[i] + b * y_entries[i]


@compiled(fastmath={"contract", "reassoc"})
def add_weighted_rows(weights, matrix, target):
    """target += weights @ matrix. BLAS is slower for small matrices: its call takes 0.2 us."""
    rows, columns = matrix.shape
    even = rows - rows % 4
    for i in range(0, even, 4):  # target is read and written once for four rows
        a, b, c, d = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        for j in range(columns):
            target[j] += (
                a * matrix[i, j]
                + b * matrix[i + 1, j]
                + c * matrix[i + 2, j]
                + d * matrix[i + 3, j]
            )
    for i in range(even, rows):
        a = weights[i]
        for j in range(columns):
            target[j] += a * matrix[i, j]


@compiled(fastmath={"contract", "reassoc"})
def multiply_rows(matrix, vector, target):
    """target = matrix @ vector. See `add_weighted_rows`."""
    rows, columns = matrix.shape
    even = rows - rows % 4
    for i in range(0, even, 4):  # an entry of the vector is read once for four rows
        a = b = c = d = matrix.dtype.type(0)
        for j in range(columns):
            x = vector[j]
            a += matrix[i, j] * x
            b += matrix[i + 1, j] * x
            c += matrix[i + 2, j] * x
            d += matrix[i + 3, j] * x
        target[i], target[i + 1], target[i + 2], target[i + 3] = a, b, c, d
    for i in range(even, rows):
        a = matrix.dtype.type(0)
        for j in range(columns):
            a += matrix[i, j] * vector[j]
        target[i] = a
