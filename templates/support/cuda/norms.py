"""Sizes of matrices, found by the threads of a block together."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import device
from .blocks import larger


@device
def row_sizes(a, sizes):
    """sizes[i] = the largest entry of a row; nan if one is."""
    rows, columns = a.shape
    for i in range(cuda.threadIdx.x, rows, cuda.blockDim.x):
        largest = a.dtype.type(0)
        for j in range(columns):
            largest = larger(abs(a[i, j]), largest)
        sizes[i] = largest


@device
def largest_size(sizes, count):
    """The largest of the first sizes; nan if one is."""
    largest = sizes.dtype.type(0)
    for i in range(count):
        largest = larger(sizes[i], largest)
    return largest


@device
def column_sums(a, sums):
    """sums[j] = the sum of the sizes of the entries of a column."""
    rows, columns = a.shape
    for j in range(cuda.threadIdx.x, columns, cuda.blockDim.x):
        total = a.dtype.type(0)
        for i in range(rows):
            total += abs(a[i, j])
        sums[j] = total


@device
def row_sums(a, sums):
    """sums[i] = the sum of the sizes of the entries of a row."""
    rows, columns = a.shape
    for i in range(cuda.threadIdx.x, rows, cuda.blockDim.x):
        total = a.dtype.type(0)
        for j in range(columns):
            total += abs(a[i, j])
        sums[i] = total


@device
def largest_row(a, sums):
    """The largest sum of the sizes of the entries of a row, as `largest_column`."""
    cuda.syncthreads()
    row_sums(a, sums)
    cuda.syncthreads()
    return largest_size(sums, a.shape[0])


@device
def largest_column(a, sums):
    """The 1-norm of a matrix, nan if there is one in it, for all threads of a block; `sums` is
    overwritten."""
    cuda.syncthreads()
    column_sums(a, sums)
    cuda.syncthreads()
    return largest_size(sums, a.shape[1])
