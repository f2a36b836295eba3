"""Kernels as handlers of XLA's typed FFI: compiled functions that read XLA's call frame.

The frame's layout is that of `xla/ffi/api/c_api.h` in `jax.ffi.include_dir()`, where all that is
read lies at the same place in each of the versions in `KNOWN`. Everything in it that is read is a
64-bit word. What is rare is done in Python: to answer which version a handler is for, and to say
what a kernel raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, Structure, byref, c_char, c_char_p, c_int, c_int64, c_size_t, c_void_p
from itertools import count
from math import prod
from types import ModuleType
from typing import Any

import jax
import numpy as np
from numba import cfunc, from_dtype, types

from derivatrix.templates.support.internals.functions import address_of
from derivatrix.templates.support.internals.verification import called_with_buffers, word_at

KNOWN = {minor << 32 for minor in (1, 2, 3)}
"""The versions 0.1, 0.2 and 0.3 of the FFI, whose layout is known, as XLA writes them in a word."""
OLDEST = 1 << 32
UNKNOWN = -1
METADATA = 1
"""The type of the extension of a frame by which XLA asks for a handler's version."""
INVALID_ARGUMENT = 3
"""The code of the errors that handlers return."""
# The places of words
FRAME_SIZE, FRAME_EXTENSION, FRAME_API, FRAME_ARGUMENTS, FRAME_RESULTS = 0, 1, 2, 9, 14
API_VERSION, API_CREATE_ERROR = 4, 6
EXTENSION_TYPE, EXTENSION_METADATA = 1, 3
METADATA_VERSION = 3
BUFFER_DATA, BUFFER_LENGTHS = 3, 5
FRAME_BYTES = 21 * 8
"""How long a frame is at least."""

Ranks = Sequence[int]

_word: Any = word_at  # its type is that of a function of the compiler's
_numbers = count()
_kept: list[Any] = []
"""What XLA may call until the process ends."""


class UnknownVersionError(Exception):
    """The FFI of this XLA has another version than those that are known."""


def register(
    module: ModuleType, kind: str, real: np.dtype[Any], given: Ranks, filled: Ranks
) -> str:
    """The name under which XLA calls a kernel of a module for one type of float.

    given, filled: how many axes its arguments have, and its results. Raises UnknownVersionError
    where XLA's call frame may have another layout."""
    name = f"derivatrix.{module.__name__}.{kind}.{real}.{next(_numbers)}"
    answer = CFUNCTYPE(c_int64, c_int64)(_answering(module, kind, real, given))
    function = _handler(getattr(module, f"{kind}_kernel"), answer, real, given, filled)
    handler = cfunc(types.int64(types.int64))(function)
    _kept.append((handler, answer))
    try:
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(c_void_p(handler.address)), "cpu")
    except (RuntimeError, ValueError) as error:  # XLA refuses the version that was answered
        raise UnknownVersionError(str(error)) from error
    return name


def _handler(
    kernel: Any, answer: Any, real: np.dtype[Any], given: Ranks, filled: Ranks
) -> Callable[[int], int]:
    """What XLA calls with the address of a frame; it returns that of an error, or 0."""
    number = from_dtype(real)
    numbers = tuple(types.Array(number, rank, "C") if rank else number for rank in given)
    results = tuple(types.Array(number, rank, "C") for rank in filled)
    address = address_of(kernel, numbers + results)
    raises = called_with_buffers(address, (numbers, results), BUFFER_DATA, BUFFER_LENGTHS)

    def handler(frame: int) -> int:
        extension = _word(frame, FRAME_EXTENSION)
        if extension != 0 and _word(extension, EXTENSION_TYPE) & 0xFFFFFFFF == METADATA:
            return answer(frame)
        if raises((_word(frame, FRAME_ARGUMENTS), _word(frame, FRAME_RESULTS))):
            return answer(frame)
        return 0

    return handler


class _ErrorArguments(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("extension", c_void_p),
        ("message", c_char_p),
        ("code", c_int),
    )


def _answering(
    module: ModuleType, kind: str, real: np.dtype[Any], given: Ranks
) -> Callable[[int], int]:
    def answer(frame: int) -> int:
        """What a handler returns where XLA asks for its version, or its kernel raised."""
        words = _at(frame, FRAME_RESULTS + 1)
        if words[FRAME_EXTENSION]:
            _answer_version(words)
            return 0
        return _error(words[FRAME_API], _raised(module, kind, _arguments(words, real, given)))

    return answer


def _at(address: int, length: int) -> Any:
    """64-bit words in memory."""
    return (c_int64 * length).from_address(address)


def _answer_version(frame: Any) -> None:
    """Write the version of the FFI that the handler is for: XLA's own where it is known and says
    what it is, OLDEST where it does not say. XLA refuses every other one."""
    version = OLDEST
    if frame[FRAME_API]:
        version = _at(frame[FRAME_API], API_VERSION + 1)[API_VERSION]
    if version not in KNOWN or frame[FRAME_SIZE] < FRAME_BYTES:
        version = UNKNOWN
    metadata = _at(_at(frame[FRAME_EXTENSION], 4)[EXTENSION_METADATA], METADATA_VERSION + 1)
    metadata[METADATA_VERSION] = version


def _arguments(frame: Any, real: np.dtype[Any], given: Ranks) -> list[np.ndarray]:
    """The arrays that a kernel was called with."""
    arrays = []
    for buffer, rank in zip(_at(frame[FRAME_ARGUMENTS], len(given)), given, strict=True):
        words = _at(buffer, BUFFER_LENGTHS + 1)
        shape = tuple(_at(words[BUFFER_LENGTHS], rank))
        size = prod(shape) * real.itemsize
        numbers = (c_char * size).from_address(words[BUFFER_DATA]) if size else b""
        arrays.append(np.ndarray(shape, real, numbers))
    return arrays


def _raised(module: ModuleType, kind: str, arrays: list[np.ndarray]) -> str:
    """What a function of a module raises for some arrays."""
    try:
        getattr(module, kind)(*arrays)
    except Exception as error:  # XLA, which called, would go on as if there was none
        return f"{type(error).__name__}: {error}"
    return f"{module.__name__}: {kind} failed"


def _error(api: int, message: str) -> int:
    """The address of an error of XLA's, which it owns."""
    create = CFUNCTYPE(c_int64, c_void_p)(_at(api, API_CREATE_ERROR + 1)[API_CREATE_ERROR])
    size = _ErrorArguments.code.offset + _ErrorArguments.code.size
    given = _ErrorArguments(size, None, message.encode(), INVALID_ARGUMENT)
    return int(create(byref(given)))
