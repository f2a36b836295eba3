"""Functions that call a kernel for parts of its samples, of its rows, or of its sums."""

# mypy: allow-untyped-defs

from itertools import compress

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


def _by_samples(kernel, parallel, sliced, cache_blocks):
    """Make a function that calls a kernel for parts of its samples, one for each thread; or, with
    `cache_blocks`, for blocks that fit in the cache. sliced: flags of the inputs that are sliced
    along their first axis, as all outputs are."""

    def call(ops, *arrays):
        """Call it. ops: estimated operations."""
        length = arrays[-1].shape[0]
        threads = parts = max(1, min(_THREADS, length, 1 + ops // MIN_OPS_PER_THREAD))
        if cache_blocks:
            flags = [*sliced, *(True for _ in arrays[len(sliced) :])]
            whole_bytes = _bytes(arrays, [not is_sliced for is_sliced in flags])
            block_bytes = max(_BLOCK_BYTES, 4 * whole_bytes)
            step = block_bytes * length // max(1, _bytes(arrays, flags))
            parts = _part_count(threads, length, step)
        if parts == 1 or _THREAD_POOL.submit(
            parallel, threads, parts, length, arrays[-1].dtype, arrays
        ):
            _THREAD_POOL.run(kernel, *arrays)  # raises what the part raised

    return call


def _in_batch_last(kernel, parallel):
    """Make a function that does the work of a kernel in the batch-last layout, by `parallel`, for
    blocks of samples that fit in the cache."""

    def call(entries, ops, *arrays):
        """Call it. ops: estimated operations; entries: memory of a sample, in numbers."""
        length = arrays[-1].shape[0]
        threads = max(1, min(_THREADS, length, 1 + ops // MIN_OPS_PER_THREAD))
        step = 2 * _BLOCK_BYTES // max(1, arrays[-1].itemsize * entries)
        parts = _part_count(threads, length, max(_MIN_BATCH_LAST_SAMPLES, step))
        if _THREAD_POOL.submit(parallel, threads, parts, length, arrays[-1].dtype, arrays):
            _THREAD_POOL.run(kernel, *arrays)  # raises what the part raised

    return call


def _part_count(threads, length, step):
    """Count the parts of at most `step` samples, a multiple of the number of threads."""
    return max(1, min(length, threads * -(-length // (max(1, step) * threads))))


def _by_rows(kernel, parallel):
    """Make a function that calls a kernel for shares of its rows by a few threads: more write no
    faster, and each allocates temporary arrays."""

    def call(ops, work_arrays, *arrays):
        """Call it. ops: estimated operations; work_arrays: allocates the arrays that phases share,
        for a number of threads."""
        count = min(_THREADS, MAX_WRITING_THREADS, 1 + ops // MIN_OPS_PER_THREAD)
        real, arguments = arrays[-1].dtype, (*arrays, *work_arrays(count)) if count > 1 else ()
        if count == 1 or _THREAD_POOL.submit(parallel, count, count, 0, real, arguments):
            _THREAD_POOL.run(kernel, *arrays)

    return call


def _by_sums(kernel, parallel, sliced, sums, min_samples, is_blas_bound, is_gram_bound):
    """Make a function that computes results that are sums over samples: threads call `parallel` for
    partial sums. sums: flags of the results that are sums; min_samples: fewest samples in a block;
    is_blas_bound: whether BLAS does most of the work; is_gram_bound: whether each thread has one
    block, for which BLAS computes Gram matrices."""

    def call(entries, ops, ops_per_part, *arrays):
        """Call it. entries: memory of a sample, in numbers; ops: estimated operations for a sample;
        ops_per_part: those that each part adds."""
        length = arrays[sliced.index(True)].shape[0]
        whole_bytes = _bytes(arrays[: len(sliced)], [not is_sliced for is_sliced in sliced])
        block_bytes, min_step = max(_BLOCK_BYTES, 4 * whole_bytes), min_samples
        if is_blas_bound:
            block_bytes, min_step = max(_BLAS_BLOCK_BYTES, whole_bytes), _MIN_BLAS_SAMPLES
        step = block_bytes // max(1, arrays[-1].itemsize * entries)
        step = max(min_step, step, _MIN_WORK_RATIO * ops_per_part // max(1, ops))
        count = max(1, min(_THREADS, length // step, 1 + ops * length // MIN_OPS_PER_THREAD))
        if is_gram_bound:
            step = length
            if count == 1:
                _THREAD_POOL.run_by_one_thread(kernel, *arrays)
                return
        inputs, results = arrays[: len(sliced)], arrays[len(sliced) :]
        totals = list(compress(results, sums))
        other_results = [result for result, is_sum in zip(results, sums, strict=True) if not is_sum]
        partial_sums = [np.empty((count, *total.shape), total.dtype) for total in totals]
        arguments = (*inputs, *other_results, *partial_sums, step)
        if _THREAD_POOL.submit(parallel, count, count, length, arrays[-1].dtype, arguments):
            _THREAD_POOL.run(kernel, *arrays)  # raises what the part raised
            return
        for total, partials in zip(totals, partial_sums, strict=True):
            np.add.reduce(partials, axis=0, out=total)

    return call


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
