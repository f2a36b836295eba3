"""Functions that call a kernel for parts of its samples, of its rows, or of its sums."""

# mypy: allow-untyped-defs

from itertools import compress
from typing import NamedTuple

import numpy as np
from numba import config

from ..common.limits import MAX_WRITING_THREADS, MIN_OPS_PER_THREAD
from ..internals.functions import compiled
from .thread_pool import _THREAD_POOL

_THREADS = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
_BLOCK_BYTES = 1 << 18
"""Bytes of arguments and results in a block whose temporary arrays should stay in the cache; larger
arrays that every block reads as a whole make blocks larger."""
_BLAS_BLOCK_BYTES = 80_000
"""Bytes of arguments and results in a block that products of matrices read several times."""
_MIN_BLAS_SAMPLES = 32
"""Fewest samples in a block that BLAS multiplies."""
_MIN_BATCH_LAST_SAMPLES = 72
"""Fewest samples in a block of the batch-last layout."""
_MIN_WORK_RATIO = 8
"""Smallest ratio of the work for the samples of a part to the work that every part repeats."""


class _Division(NamedTuple):
    """The division of the work of a call into parts. threads: most threads that compute them.
    length: of the axis along which parts are slices. arguments: further ones of the kernel for a
    part."""

    threads: int
    parts: int
    length: int = 0
    arguments: tuple = ()


def _in_parts(kernel, parallel, divide, sums=(), run=_THREAD_POOL.run):
    """Make a function that calls `parallel` for the parts of the work of a kernel.

    divide: arrays and costs -> the `_Division`, or None if one thread is to `run` the kernel.
    sums: flags of the arrays that are sums over the parts, each of which has its own array; none by
    default."""

    def call(costs, *arrays):
        """Compute the parts of a call, and add up their sums. costs: the last of `divide`."""
        division = divide(arrays, *costs)
        if division is None:
            run(kernel, *arrays)
            return
        threads, parts, length, further = division
        flags = sums or [False] * len(arrays)
        totals = [*compress(arrays, flags)]
        partial_sums = [np.empty((parts, *total.shape), total.dtype) for total in totals]
        others = (array for array, is_sum in zip(arrays, flags, strict=True) if not is_sum)
        arguments = (*others, *partial_sums, *further)
        if _THREAD_POOL.submit(parallel, threads, parts, length, arrays[-1].dtype, arguments):
            run(kernel, *arrays)  # raises what the part raised
            return
        for total, partials in zip(totals, partial_sums, strict=True):
            np.add.reduce(partials, axis=0, out=total)

    return call


def _by_rows(arrays, ops, work_arrays=None):
    """Cut the work by rows, for a few threads: more write no faster, and each allocates temporary
    arrays. ops: estimated operations; work_arrays: allocates the arrays that phases share, if there
    are any, for a number of threads."""
    count = min(MAX_WRITING_THREADS, _thread_count(ops))
    shared = work_arrays(count) if work_arrays and count > 1 else ()
    return _Division(count, count, 0, shared) if count > 1 else None


def _by_samples(sliced, cache_blocks, arrays, ops):
    """Cut the work by samples, a part for each thread; or, with `cache_blocks`, in blocks that fit
    in the cache. sliced: flags of the inputs that are sliced along their first axis, as all outputs
    are. ops: estimated operations."""
    length = arrays[-1].shape[0]
    threads = parts = max(1, min(length, _thread_count(ops)))
    if cache_blocks:
        flags = [*sliced, *(True for _ in arrays[len(sliced) :])]
        whole_bytes = _bytes(arrays, [not is_sliced for is_sliced in flags])
        block_bytes = max(_BLOCK_BYTES, 4 * whole_bytes)
        parts = _part_count(threads, length, block_bytes * length // max(1, _bytes(arrays, flags)))
    return _Division(threads, parts, length) if parts > 1 else None


def _in_batch_last(arrays, entries, ops):
    """Cut the work in the batch-last layout, in blocks of samples that fit in the cache. entries:
    memory of a sample, in numbers; ops: estimated operations."""
    length = arrays[-1].shape[0]
    threads = max(1, min(length, _thread_count(ops)))
    step = 2 * _BLOCK_BYTES // max(1, arrays[-1].itemsize * entries)
    return _Division(
        threads, _part_count(threads, length, max(_MIN_BATCH_LAST_SAMPLES, step)), length
    )


def _by_sums(sliced, min_samples, is_blas_bound, is_gram_bound, arrays, entries, ops, ops_per_part):
    """Cut the work by samples over which results are sums. min_samples: fewest samples in a block;
    is_blas_bound: whether BLAS does most of the work; is_gram_bound: whether each thread has one
    block, for which BLAS computes Gram matrices. entries: memory of a sample, in numbers; ops:
    estimated operations for a sample; ops_per_part: those that each part adds."""
    length = arrays[sliced.index(True)].shape[0]
    whole_bytes = _bytes(arrays[: len(sliced)], [not is_sliced for is_sliced in sliced])
    block_bytes, min_step = max(_BLOCK_BYTES, 4 * whole_bytes), min_samples
    if is_blas_bound:
        block_bytes, min_step = max(_BLAS_BLOCK_BYTES, whole_bytes), _MIN_BLAS_SAMPLES
    step = block_bytes // max(1, arrays[-1].itemsize * entries)
    step = max(min_step, step, _MIN_WORK_RATIO * ops_per_part // max(1, ops))
    count = max(1, min(length // step, _thread_count(ops * length)))
    if is_gram_bound:
        return _Division(count, count, length, (length,)) if count > 1 else None
    return _Division(count, count, length, (step,))


def _thread_count(ops):
    """Count the threads that an estimated number of operations pays for."""
    return min(_THREADS, 1 + ops // MIN_OPS_PER_THREAD)


def _part_count(threads, length, step):
    """Count the parts of at most `step` samples, a multiple of the number of threads."""
    return max(1, min(length, threads * -(-length // (max(1, step) * threads))))


@compiled(linked=True)
def border(length, part, parts):
    """Return where a part of a length starts."""
    # the mask shows LLVM that indices are not negative; it does not vectorise a loop whose indices
    # may count from the end of the axis
    return (length * part // parts) & 0x7FFFFFFFFFFF


@compiled()
def add_onto(total, addend):
    """total += addend, for arrays of one axis."""
    for i in range(total.size):
        total[i] += addend[i]


def _bytes(arrays, flags):
    """Add up the bytes of the arrays whose flags are set; numbers have none."""
    pairs = zip(arrays, flags, strict=True)
    return sum(array.nbytes for array, flag in pairs if flag and isinstance(array, np.ndarray))
