"""The product of each row, and of all of its entries but one."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import THREADS, kernel
from .blocks import block_product, rows_of


def row_products(run, x, out):
    """out[s] = the product of x[s, :]; x (stack, n)."""
    run.launch(products_of_rows, *rows_of(*x.shape), x, out)


def products_of_others(run, x, out):
    """out[s, i] = the product of x[s, :] without x[s, i]: of what is before it and after it."""
    blocks, threads = rows_of(*x.shape)
    run.launch(products_without, blocks if x.size else 0, threads, x, out)


@kernel("real[:, ::1], real[::1]")
def products_of_rows(x, out):
    """out[s] = the product of x[s, :]."""
    stack, n = x.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    step = cuda.gridDim.x * cuda.blockDim.y
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, stack, step):
        s = min(first + cuda.threadIdx.y, stack - 1)
        total = x.dtype.type(1)
        for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            total *= x[s, i]
        total = block_product(total, shared)
        if cuda.threadIdx.x == 0:
            out[s] = total


@kernel("real[:, ::1], real[:, ::1]")
def products_without(x, out):
    """Products of the others, each thread for some neighbouring entries."""
    stack, n = x.shape
    shared = cuda.shared.array(THREADS, x.dtype)
    t, width = cuda.threadIdx.x, cuda.blockDim.x
    left = cuda.threadIdx.y * width
    length = (n + width - 1) // width
    begin, end = min(t * length, n), min(t * length + length, n)
    step = cuda.gridDim.x * cuda.blockDim.y
    for first in range(cuda.blockIdx.x * cuda.blockDim.y, stack, step):
        s = min(first + cuda.threadIdx.y, stack - 1)
        own = x.dtype.type(1)
        for i in range(begin, end):
            own *= x[s, i]
        shared[left + t] = own
        cuda.syncthreads()
        before = x.dtype.type(1)
        for other in range(t):
            before *= shared[left + other]
        after = x.dtype.type(1)
        for other in range(t + 1, width):
            after *= shared[left + other]
        for i in range(begin, end):
            out[s, i] = before
            before *= x[s, i]
        for i in range(end - 1, begin - 1, -1):
            out[s, i] *= after
            after *= x[s, i]
        cuda.syncthreads()
