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


def _in_parts(kernel, sliced):
    """The kernel, each of whose arguments is cut along its first axis if `sliced` says so, and
    each of whose outputs is: as many parts as there are threads for Numba."""

    def call(*arrays):
        length = arrays[-1].shape[0]
        count = min(_THREADS, length)
        if count < 2:
            kernel(*arrays)
            return
        if not _POOL:
            _POOL.append(ThreadPoolExecutor(_THREADS - 1))
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_POOL.clear)
        cuts = [length * part // count for part in range(count + 1)]
        flags = [*sliced, *(True for _ in arrays[len(sliced) :])]
        works = [
            [array[start:stop] if cut else array for array, cut in zip(arrays, flags, strict=True)]
            for start, stop in itertools.pairwise(cuts)
        ]
        others = [_POOL[0].submit(kernel, *work) for work in works[1:]]
        try:
            kernel(*works[0])
        finally:
            for other in others:
                other.exception()
        for other in others:
            other.result()

    return call
