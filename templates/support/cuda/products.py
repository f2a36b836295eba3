"""The product of each row, and of all of its entries but one."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import THREADS, kernel
from .shares import PRODUCT, each_row, reduce_rows


def row_products(run, x, out):
    """out[s] = the product of x[s, :]; x (stack, n)."""
    reduce_rows(run, x, out, PRODUCT)


def products_of_others(run, x, out):
    """out[s, i] = the product of x[s, :] without x[s, i]."""
    each_row(run, products_without, *x.shape, x, out)


@kernel("real[:, ::1], real[:, ::1], int64")
def products_without(x, out, lanes):
    """`products_of_others`. Each thread multiplies a run of neighbouring entries; the products of
    the runs before and after it come from shared memory."""
    stack, n = x.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    lane, groups = cuda.threadIdx.x & (lanes - 1), cuda.blockDim.x // lanes
    group_start = cuda.threadIdx.x - lane
    length = (n + lanes - 1) // lanes
    begin, end = min(lane * length, n), min(lane * length + length, n)
    for start in range(cuda.blockIdx.x * groups, stack, cuda.gridDim.x * groups):
        s = min(start + cuda.threadIdx.x // lanes, stack - 1)
        product = x.dtype.type(1)
        for i in range(begin, end):
            product *= x[s, i]
        shared[group_start + lane] = product
        cuda.syncthreads()
        before = x.dtype.type(1)
        for neighbour in range(lane):
            before *= shared[group_start + neighbour]
        after = x.dtype.type(1)
        for neighbour in range(lane + 1, lanes):
            after *= shared[group_start + neighbour]
        for i in range(begin, end):
            out[s, i] = before
            before *= x[s, i]
        for i in range(end - 1, begin - 1, -1):
            out[s, i] *= after
            after *= x[s, i]
        cuda.syncthreads()
