"""Kernels in parts: of the samples, of the rows of results, or of sums over samples."""

# mypy: allow-untyped-defs

from itertools import compress

import numpy as np
from numba import config

from ..common.limits import MAX_WRITING_THREADS, MIN_OPS_PER_THREAD
from ..internals.functions import compiled
from .thread_pool import _THREAD_POOL

_THREADS = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
_PART = 1 << 18
"""Bytes of arguments and results that are computed at a time where temporary arrays should stay in
the cache; more where each part reads large arrays as a whole."""
_NEAR = 80_000
"""Bytes of arguments and results that are computed at a time where products of matrices read them
several times."""
_ROWS = 32
"""The least samples that BLAS multiplies at a time."""
_COLUMNS = 72
"""The least samples that are computed at a time where they come last in memory."""
_AGAIN = 8
"""The least ratio of a part's own work to what every part repeats."""


def _by_samples(kernel, shared, sliced, blocks):
    """The kernel with its arguments cut along their first axis where `sliced` says so, and its
    outputs: a part a thread. With `blocks`, each so many samples at a time that they stay in the
    cache."""

    def call(work, *arrays):
        length = arrays[-1].shape[0]
        threads = parts = max(1, min(_THREADS, length, 1 + work // MIN_OPS_PER_THREAD))
        if blocks:
            flags = [*sliced, *(True for _ in arrays[len(sliced) :])]
            whole, divided = _bytes(arrays, [not cut for cut in flags]), _bytes(arrays, flags)
            parts = _rounds(threads, length, max(_PART, 4 * whole) * length // max(1, divided))
        if parts == 1 or _THREAD_POOL.submit(
            shared, threads, parts, length, arrays[-1].dtype, arrays
        ):
            _THREAD_POOL.run(kernel, *arrays)  # raises what the part raised

    return call


def _in_columns(kernel, shared):
    """What the kernel does, by `shared`, which has the samples last in memory, so many at a time
    that they stay in the cache."""

    def call(entries, work, *arrays):
        """A sample takes about `entries` numbers in memory."""
        length = arrays[-1].shape[0]
        threads = max(1, min(_THREADS, length, 1 + work // MIN_OPS_PER_THREAD))
        step = max(_COLUMNS, 2 * _PART // max(1, arrays[-1].itemsize * entries))
        parts = _rounds(threads, length, step)
        if _THREAD_POOL.submit(shared, threads, parts, length, arrays[-1].dtype, arrays):
            _THREAD_POOL.run(kernel, *arrays)  # raises what the part raised

    return call


def _rounds(threads, length, step):
    """How many parts there are of at most `step` of a length, as many for each thread."""
    return max(1, min(length, threads * -(-length // (max(1, step) * threads))))


def _by_rows(kernel, shared):
    """All of what the kernel does, a share of the rows by each of a few threads: more do not write
    faster, and each makes temporary arrays of its own."""

    def call(work, work_arrays, *arrays):
        """work_arrays: makes those that the phases share, for a number of threads."""
        count = min(_THREADS, MAX_WRITING_THREADS, 1 + work // MIN_OPS_PER_THREAD)
        given = (*arrays, *work_arrays(count)) if count > 1 else ()
        if count == 1 or _THREAD_POOL.submit(shared, count, count, 0, arrays[-1].dtype, given):
            _THREAD_POOL.run(kernel, *arrays)

    return call


def _by_sums(kernel, shared, sliced, sums, least, products):
    """What the kernel does, that is made of sums over samples: `shared` adds up those of a part, at
    least so many samples at a time. sums: which results are sums; products: whether BLAS does most
    of that."""

    def call(entries, work, fixed, *arrays):
        """A sample takes about `entries` numbers in memory and `work` operations, each part
        `fixed` operations besides."""
        length = arrays[sliced.index(True)].shape[0]
        held = _bytes(arrays[: len(sliced)], [not cut for cut in sliced])
        near = max(_NEAR, held) if products else max(_PART, 4 * held)
        step = near // max(1, arrays[-1].itemsize * entries)
        step = max(_ROWS if products else least, step, _AGAIN * fixed // max(1, work))
        count = max(1, min(_THREADS, length // step, 1 + work * length // MIN_OPS_PER_THREAD))
        inputs, results = arrays[: len(sliced)], arrays[len(sliced) :]
        totals = list(compress(results, sums))
        others = [result for result, is_sum in zip(results, sums, strict=True) if not is_sum]
        of_parts = [np.empty((count, *total.shape), total.dtype) for total in totals]
        given = (*inputs, *others, *of_parts, step)
        if _THREAD_POOL.submit(shared, count, count, length, arrays[-1].dtype, given):
            _THREAD_POOL.run(kernel, *arrays)  # raises what the part raised
            return
        for total, addends in zip(totals, of_parts, strict=True):
            np.add.reduce(addends, axis=0, out=total)

    return call


@compiled(linked=True)
def border(length, part, parts):
    """Where a part of a length starts. Cut off so that compilers see that places from there on are
    not negative; they do not vectorise a loop over places that may count from the end."""
    return (length * part // parts) & 0x7FFFFFFFFFFF


@compiled()
def add_onto(total, addend):
    """total += addend, for arrays of one axis."""
    for i in range(total.size):
        total[i] += addend[i]


def _bytes(arrays, flags):
    """The size of those arrays whose flags are set; numbers are none."""
    chosen = zip(arrays, flags, strict=True)
    return sum(array.nbytes for array, flag in chosen if flag and isinstance(array, np.ndarray))
