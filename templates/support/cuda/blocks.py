"""How work on stacks is dealt out to blocks and threads."""

# mypy: allow-untyped-defs

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


def entries(count):
    """Blocks and threads where every entry is a thread's."""
    threads = power_of_two(count, THREADS)
    return blocks_for(count, threads), threads


@device
def position(number, shape):
    """The indices of entry `number` of a stack of matrices of this shape."""
    _, rows, columns = shape
    return number // columns // rows, number // columns % rows, number % columns
