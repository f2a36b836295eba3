"""Memory that shows who reads or writes outside his array: each lies alone, with one end at a page
that nobody may touch, which ends the process (SIGSEGV).

On Linux, for arguments, results and all arrays that compiled code makes. What is read of an array
before it is written differs with the end that it has there (`FILLS`).
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence
from threading import Lock
from types import ModuleType

import numpy as np
from llvmlite import binding
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.core.runtime import _nrt_python  # type: ignore[attr-defined]
from numba.core.runtime.nrt import rtsys
from numba.extending import intrinsic

from derivatrix.runtime.support import with_support
from derivatrix.templates.support.internals.functions import call_named
from derivatrix.templates.support.internals.memory import places, view

PAGE = mmap.PAGESIZE
ROOM = 1 << 40
"""Addresses, of which few have memory."""
APART = 1 << 20
"""Bytes between arrays that nobody may touch."""
MOST = 25_000
"""Most arrays that are placed apart, as a process can have about 65,000 mappings; later arrays of a
call are placed side by side."""
END, START = SIDES = (0, 1)
"""The end of an array that is guarded."""
FILLS = (0xFF, 0x3F)
"""Fill byte of memory, by side: nan and -1, or 0.0005 (0.75) and a large integer."""
DATA, SIZE = 3, 4
"""The words of what Numba counts an array's references in that have its address and its bytes."""

_library = ctypes.CDLL(None, use_errno=True)
_library.mmap.restype = ctypes.c_void_p
_library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_NOTHING = 0  # PROT_NONE
_BOTH = mmap.PROT_READ | mmap.PROT_WRITE
_RESERVED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
_FIXED = 0x10


class Guard:
    """The memory; one in a process."""

    def __init__(self) -> None:
        self._begin = _library.mmap(None, ROOM, _NOTHING, _RESERVED, -1, 0)
        self._end, self._count = self._begin + APART, 0
        self._lock = Lock()
        self.side = END

    def take(self, size: int) -> int:
        """The address of a new block of so many bytes."""
        pages = max(1, -(-size // PAGE)) * PAGE
        with self._lock:
            self._count += 1
            apart = APART if self._count < MOST else 0
            first, self._end = self._end, self._end + pages + apart
        if first + pages > self._begin + ROOM or _library.mprotect(first, pages, _BOTH):
            raise MemoryError("there is no room for one more guarded array")
        ctypes.memset(first, FILLS[self.side], pages)
        return first if self.side == START else first + pages - size

    def array(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        """A new array, which is there until `clear`."""
        size = math.prod(shape) * dtype.itemsize
        memory = (ctypes.c_char * max(size, 1)).from_address(self.take(size))
        return np.ndarray(tuple(shape), dtype, memory)

    def clear(self, side: int) -> None:
        """Take all memory back; of the arrays made from now on that end is watched."""
        _library.mmap(self._begin, self._end - self._begin, _NOTHING, _RESERVED | _FIXED, -1, 0)
        self._end, self._count, self.side = self._begin + APART, 0, side


guard = Guard()


@ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_size_t)
def _take(size):
    return guard.take(size)


@ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint)
def _counted(size, alignment):
    """Allocate Numba's own array in guarded memory."""
    counted = _usual(64, 16)
    words = (ctypes.c_size_t * (SIZE + 1)).from_address(counted)
    words[DATA], words[SIZE] = _take(size), size
    return counted


_usual = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint)(
    _nrt_python.c_helpers["MemInfo_alloc_aligned"]
)
rtsys.initialize(cpu_target.target_context)


def _address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


binding.add_symbol("guarded_take", _address(_take))
binding.add_symbol("NRT_MemInfo_alloc_aligned", _address(_counted))


@intrinsic
def work_arrays(context, like, shapes, integers):
    """Allocate work arrays as `support.internals.memory` does, each in guarded memory."""
    kinds = [types.Array(like.dtype, len(shape), "C") for shape in shapes]
    kinds += [types.Array(types.int32, len(shape), "C") for shape in integers]
    made = types.Tuple([*kinds, types.intp])

    def generate(context, builder, signature, values):
        word = context.get_value_type(types.intp)
        given = [shape for value in values[1:] for shape in cgutils.unpack_tuple(builder, value)]
        parts = []
        for kind, shape, lengths in zip(kinds, given, (*shapes, *integers), strict=True):
            axes = places(context, builder, shape, lengths)
            size = word(kind.dtype.bitwidth // 8)
            for length in axes:
                size = builder.mul(size, length)
            place = call_named(builder, "guarded_take", word, [size])
            place = builder.inttoptr(place, context.get_value_type(kind.dtype).as_pointer())
            parts.append(view(context, builder, kind, place, axes))
        return context.make_tuple(builder, made, [*parts, word(0)])

    return made(like, shapes, integers), generate


@njit
def give_back(memory):
    """The arrays stay until `Guard.clear`."""


def guarded(module: ModuleType) -> ModuleType:
    """The module, of whose kernels and helpers none is compiled yet, with work arrays apart."""
    for each in with_support(module):
        if hasattr(each, "work_arrays"):
            each.work_arrays, each.give_back = work_arrays, give_back  # type: ignore[attr-defined]
    return module
