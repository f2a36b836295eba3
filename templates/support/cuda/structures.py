"""The nearest matrices of a declared structure, which kernels read instead of an argument."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import kernel, position

ANY_WIDTH = 1 << 40
"""A bandwidth that no matrix exceeds."""


def nearest_symmetric(run, array):
    """Return (A + Aᵀ) / 2 for all matrices A of an array, in a new array: to find out whether they
    are symmetric, the host would have to wait for the device."""
    return filled(run, fill_symmetric, array)


def nearest_lower(run, array):
    """Return the lower triangles in a new array."""
    return filled(run, fill_band, array, ANY_WIDTH, 0)


def nearest_upper(run, array):
    """Return the upper triangles in a new array."""
    return filled(run, fill_band, array, 0, ANY_WIDTH)


def nearest_diagonal(run, array):
    """Return the diagonals in a new array."""
    return filled(run, fill_band, array, 0, 0)


def filled(run, fill, array, *widths):
    """Return a new array of the shape of `array`, filled by the kernel `fill`; both are stacks of
    matrices there."""
    out = run.empty(array.shape)
    if array.size:
        shape = -1, *array.shape[-2:]
        run.launch(fill, array.size, array.reshape(shape), out.reshape(shape), *widths)
    return out


@kernel("real[:, :, ::1], real[:, :, ::1]")
def fill_symmetric(source, out):
    """out = A / 2 + Aᵀ / 2: the sum of large entries could overflow."""
    for number in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        s, i, j = position(number, out.shape)
        out[s, i, j] = source[s, i, j] / 2 + source[s, j, i] / 2


@kernel("real[:, :, ::1], real[:, :, ::1], int64, int64")
def fill_band(source, out, below, above):
    """out = the entries on the diagonal and on the next `below` and `above` diagonals, zero
    elsewhere."""
    for number in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        s, i, j = position(number, out.shape)
        out[s, i, j] = source[s, i, j] if -below <= j - i <= above else 0
