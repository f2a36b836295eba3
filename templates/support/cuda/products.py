"""The product of each row, and of all of its entries but one."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import THREADS, kernel
from .shares import PRODUCT, each_row, reduce_rows


def row_products(run, x, out):
    """out[s] = the product of x[s, :]; x (stack, n)."""
    reduce_rows(run, x, out, PRODUCT)


def products_of_others(run, x, out):
    """out[s, i] = the product of x[s, :] without x[s, i]: of what is before it and after it."""
    each_row(run, products_without, *x.shape, x, out)


@kernel("real[:, ::1], real[:, ::1], int64")
def products_without(x, out, lanes):
    """Products of the others, each thread for some neighbouring entries."""
    stack, n = x.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    lane, groups = cuda.threadIdx.x & (lanes - 1), cuda.blockDim.x // lanes
    left = cuda.threadIdx.x - lane
    length = (n + lanes - 1) // lanes
    begin, end = min(lane * length, n), min(lane * length + length, n)
    for first in range(cuda.blockIdx.x * groups, stack, cuda.gridDim.x * groups):
        s = min(first + cuda.threadIdx.x // lanes, stack - 1)
        own = x.dtype.type(1)
        for i in range(begin, end):
            own *= x[s, i]
        shared[left + lane] = own
        cuda.syncthreads()
        before = x.dtype.type(1)
        for other in range(lane):
            before *= shared[left + other]
        after = x.dtype.type(1)
        for other in range(lane + 1, lanes):
            after *= shared[left + other]
        for i in range(begin, end):
            out[s, i] = before
            before *= x[s, i]
        for i in range(end - 1, begin - 1, -1):
            out[s, i] *= after
            after *= x[s, i]
        cuda.syncthreads()
