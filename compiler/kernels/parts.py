"""Kernels called by several threads, each with a part of the samples.

Threads of Python, not of Numba: its simplest threads end the process where two callers meet.
"""

# mypy: allow-untyped-defs

import itertools
import os
from concurrent.futures import ThreadPoolExecutor

from numba import config

_THREADS = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
_POOL = list[ThreadPoolExecutor]()
"""The other threads, once they are needed."""
_PART = 1 << 18
"""Bytes of arguments and results that are computed at a time where temporary arrays should stay in
the cache; more where each part reads large arrays as a whole."""
_WRITERS = 4
"""How many threads are enough to write as fast as the memory takes it."""


def _in_parts(kernel, sliced, short):
    """The kernel, each of whose arguments is cut along its first axis if `sliced` says so, and
    each of whose outputs is: as many parts as there are threads for Numba, or more if `short`."""

    def work(arrays, flags, start, stop, step):
        for begin in range(start, stop, step):
            end = min(begin + step, stop)
            kernel(
                *(
                    array[begin:end] if cut else array
                    for array, cut in zip(arrays, flags, strict=True)
                )
            )

    def call(*arrays):
        length = arrays[-1].shape[0]
        flags = [*sliced, *(True for _ in arrays[len(sliced) :])]
        count = max(1, min(_THREADS, length))
        step = length
        if short:
            sizes = [0, 0]
            for array, cut in zip(arrays, flags, strict=True):
                sizes[cut] += array.nbytes
            whole, divided = sizes
            step = max(_PART, 4 * whole) * length // max(1, divided)
        cuts = [length * part // count for part in range(count + 1)]
        jobs = [(arrays, flags, *cut, max(1, step)) for cut in itertools.pairwise(cuts)]
        _together(work, jobs)

    return call


def _by_rows(kernel):
    """All of what the kernel of a share of rows does, a share by each of a few threads: more do
    not write faster, and each makes temporary arrays of its own."""

    def call(*arrays):
        count = min(_THREADS, _WRITERS)
        _together(kernel, [(*arrays, part, count) for part in range(count)])

    return call


def _together(work, jobs):
    """Call `work` with the arguments of each job, each by a thread."""
    if len(jobs) > 1 and not _POOL:
        _POOL.append(ThreadPoolExecutor(_THREADS - 1))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_POOL.clear)
    others = [_POOL[0].submit(work, *job) for job in jobs[1:]]
    try:
        work(*jobs[0])
    finally:
        for other in others:
            other.exception()
    for other in others:
        other.result()
