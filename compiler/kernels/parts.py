"""Kernels called by several threads, each with a part of the samples.

Threads of Python, not of Numba: its simplest threads end the process where two callers meet.
"""

# mypy: allow-untyped-defs

import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import config

from derivatrix.compiler.kernels.base import compiled

_THREADS = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
_POOL = list[ThreadPoolExecutor]()
"""The other threads, once they are needed."""
_PART = 1 << 18
"""Bytes of arguments and results that are computed at a time where temporary arrays should stay in
the cache; more where each part reads large arrays as a whole."""
_AGAIN = 8
"""How many times the work that each part repeats a part has to do besides."""
_SHARED = 2_000_000
"""The work that is worth the time that another thread takes to start."""
_WRITERS = 4
"""How many threads are enough to write as fast as the memory takes it."""


def _in_parts(kernel, sliced, blocks):
    """The kernel, each of whose arguments is cut along its first axis if `sliced` says so, and
    each of whose outputs is: as many parts as there are threads for Numba, each of them computed
    by `blocks`, if it is not None, so many samples at a time that they stay in the cache."""

    def work(arrays, flags, start, stop):
        kernel(*_cut(arrays, flags, start, stop))

    def call(*arrays):
        length = arrays[-1].shape[0]
        flags = [*sliced, *(True for _ in arrays[len(sliced) :])]
        count = max(1, min(_THREADS, length))
        cuts = itertools.pairwise(length * part // count for part in range(count + 1))
        if blocks is None:
            _together(work, [(arrays, flags, *cut) for cut in cuts])
        else:
            whole, divided = _bytes(arrays, [not cut for cut in flags]), _bytes(arrays, flags)
            step = max(1, max(_PART, 4 * whole) * length // max(1, divided))
            _together(blocks, [(*arrays, *cut, step) for cut in cuts])

    return call


def _by_rows(kernel):
    """All of what the kernel of a share of rows does, a share by each of a few threads: more do
    not write faster, and each makes temporary arrays of its own."""

    def call(*arrays):
        count = min(_THREADS, _WRITERS)
        _together(kernel, [(*arrays, part, count) for part in range(count)])

    return call


class _Sums:
    """What a kernel does that is made of sums over samples: `blocks` adds up a part of them,
    `rest` makes the results of the sums (see `compiler.plan.steps.Sums`)."""

    def __init__(self, blocks, rest, sliced, divided, ranks, least):
        self.blocks, self.rest, self.sliced = blocks, rest, sliced
        self.divided, self.ranks, self.least = divided, ranks, least

    def __call__(self, shapes, entries, work, fixed, *arrays):
        """`shapes`: of the sums. A sample takes about `entries` numbers in memory and `work`
        operations, each part `fixed` operations besides."""
        arguments, results = arrays[: len(self.sliced)], arrays[len(self.sliced) :]
        by_sample = list(itertools.compress(results, self.divided))
        others = [array for array, cut in zip(results, self.divided, strict=True) if not cut]
        length = arguments[self.sliced.index(True)].shape[0]
        real = results[0].dtype
        held = _bytes(arguments, [not cut for cut in self.sliced])
        step = max(_PART, 4 * held) // max(1, real.itemsize * entries)
        step = max(self.least, step, _AGAIN * fixed // max(1, work))
        count = max(1, min(_THREADS, length // step, 1 + work * length // _SHARED))
        sums = [[np.zeros(shape, real) for shape in shapes] for _ in range(count)]
        cuts = [length * part // count for part in range(count + 1)]
        jobs = [
            (*arguments, *by_sample, *own, *cut, step)
            for own, cut in zip(sums, itertools.pairwise(cuts), strict=True)
        ]
        _together(self.blocks, jobs)
        for own in sums[1:]:
            for total, more in zip(sums[0], own, strict=True):
                np.add(total, more, out=total)
        self.rest(*arguments, *sums[0], *others)


@compiled()
def add_onto(total, more):
    """total += more, for arrays of one shape."""
    flat, added = total.reshape(total.size), more.reshape(more.size)
    for i in range(flat.size):
        flat[i] += added[i]


def _cut(arrays, flags, begin, end):
    return [array[begin:end] if cut else array for array, cut in zip(arrays, flags, strict=True)]


def _bytes(arrays, flags):
    """The size of those arrays whose flags are set; numbers are none."""
    chosen = zip(arrays, flags, strict=True)
    return sum(array.nbytes for array, flag in chosen if flag and isinstance(array, np.ndarray))


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
