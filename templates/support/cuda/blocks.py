"""Sums and maxima over the threads of a block, and how work is dealt out to blocks.

A block has one row of threads, or several (`threadIdx.y`), each of which has work of its own.
"""

# mypy: allow-untyped-defs

from numba import cuda

from .base import THREADS, device, power_of_two

SMALL = 32
"""The most rows of matrices that kernels factorise; larger ones are left to libraries."""
MOST_BLOCKS = 65536


def blocks_for(stack, each):
    """How many blocks share the work on a stack, if each does `each` of it at a time."""
    return min((stack + each - 1) // each, MOST_BLOCKS)


def matrices(stack, n, threads):
    """Blocks and threads where every n by n matrix has a block."""
    return blocks_for(stack, 1) if n else 0, power_of_two(threads, THREADS)


def rows_of(stack, n, each=4):
    """Blocks and threads for rows of n entries: a thread has `each` of them, or more."""
    width = power_of_two((n + each - 1) // each, THREADS)
    several = power_of_two(stack, THREADS // 2 // width)
    return blocks_for(stack, several), (width, several)


def entries(count):
    """Blocks and threads where every entry is a thread's."""
    threads = power_of_two(count, THREADS)
    return blocks_for(count, threads), threads


@device
def larger(x, y):
    """The larger of two numbers; nan if one is."""
    return x if x > y or x != x else y


@device
def block_sum(value, shared):
    """The sum of the values of a row of threads, a power of two; every one of them gets it.

    shared: an array in shared memory, with an entry for each thread of the block.
    """
    start = cuda.threadIdx.y * cuda.blockDim.x
    place = start + cuda.threadIdx.x
    shared[place] = value
    half = cuda.blockDim.x >> 1
    while half > 0:
        cuda.syncthreads()
        if cuda.threadIdx.x < half:
            shared[place] += shared[place + half]
        half >>= 1
    cuda.syncthreads()
    total = shared[start]
    cuda.syncthreads()
    return total


@device
def block_product(value, shared):
    """The product of the values of a row of threads, as `block_sum`."""
    start = cuda.threadIdx.y * cuda.blockDim.x
    place = start + cuda.threadIdx.x
    shared[place] = value
    half = cuda.blockDim.x >> 1
    while half > 0:
        cuda.syncthreads()
        if cuda.threadIdx.x < half:
            shared[place] *= shared[place + half]
        half >>= 1
    cuda.syncthreads()
    total = shared[start]
    cuda.syncthreads()
    return total


@device
def block_maximum(value, shared):
    """The largest of the values of a row of threads, nan if one is; as `block_sum`."""
    start = cuda.threadIdx.y * cuda.blockDim.x
    place = start + cuda.threadIdx.x
    shared[place] = value
    half = cuda.blockDim.x >> 1
    while half > 0:
        cuda.syncthreads()
        if cuda.threadIdx.x < half:
            shared[place] = larger(shared[place], shared[place + half])
        half >>= 1
    cuda.syncthreads()
    largest = shared[start]
    cuda.syncthreads()
    return largest
