"""Kernels as handlers of XLA's typed FFI: compiled functions that read XLA's call frame.

The frame's layout is that of `xla/ffi/api/c_api.h` in `jax.ffi.include_dir()`. The fields read here
are 64-bit words at the same offsets in all KNOWN_VERSIONS. Two rare tasks are left to Python: to
answer which version a handler is for, and to make the message of an error.
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

from derivatrix.runtime.interface import interface_of
from derivatrix.templates.support.internals.functions import address_of
from derivatrix.templates.support.internals.verification import called_with_buffers, word_at

KNOWN_VERSIONS = {minor << 32 for minor in (1, 2, 3)}
"""The versions 0.1, 0.2 and 0.3 of the FFI, as XLA writes them in a word."""
OLDEST_VERSION = 1 << 32
UNKNOWN_VERSION = -1
METADATA = 1
"""Type of the frame's extension with which XLA asks for a handler's version."""
INVALID_ARGUMENT = 3
"""Code of the errors that handlers return."""
# Offsets, in words
FRAME_SIZE, FRAME_EXTENSION, FRAME_API, FRAME_ARGUMENTS, FRAME_RESULTS = 0, 1, 2, 9, 14
API_VERSION, API_CREATE_ERROR = 4, 6
EXTENSION_TYPE, EXTENSION_METADATA = 1, 3
METADATA_VERSION = 3
BUFFER_DATA, BUFFER_LENGTHS = 3, 5
FRAME_BYTES = 21 * 8
"""Minimum size of a frame."""

Ranks = Sequence[int]

_word: Any = word_at  # mypy takes it for a plain function; Numba compiles calls of it
_serial_numbers = count()
_callbacks: list[Any] = []
"""Functions that XLA may call until the process ends, kept alive."""


class UnknownVersionError(Exception):
    """The FFI of this XLA has a version whose layout is unknown."""


def register(
    module: ModuleType,
    kind: str,
    real: np.dtype[Any],
    argument_ranks: Ranks,
    result_ranks: Ranks,
) -> str:
    """Register a kernel of a module with XLA for one float type, and return its name there.

    Raises UnknownVersionError if XLA's call frame may have another layout."""
    name = f"derivatrix.{module.__name__}.{kind}.{real}.{next(_serial_numbers)}"
    in_python = CFUNCTYPE(c_int64, c_int64)(_python_handler(module, kind, real, argument_ranks))
    kernel = getattr(module, f"{kind}_kernel")
    compiled = _compiled_handler(kernel, in_python, real, argument_ranks, result_ranks)
    handler = cfunc(types.int64(types.int64))(compiled)
    _callbacks.append((handler, in_python))
    try:
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(c_void_p(handler.address)), "cpu")
    except (RuntimeError, ValueError) as error:  # XLA refuses the version that was answered
        raise UnknownVersionError(str(error)) from error
    return name


def _compiled_handler(
    kernel: Any, in_python: Any, real: np.dtype[Any], argument_ranks: Ranks, result_ranks: Ranks
) -> Callable[[int], int]:
    """Make the function that XLA calls with the address of a frame: it calls the kernel and returns
    the address of an error, or 0."""
    number = from_dtype(real)
    arguments = tuple(types.Array(number, rank, "C") if rank else number for rank in argument_ranks)
    results = tuple(types.Array(number, rank, "C") for rank in result_ranks)
    address = address_of(kernel, arguments + results)
    raises = called_with_buffers(address, (arguments, results), BUFFER_DATA, BUFFER_LENGTHS)

    def handler(frame: int) -> int:
        extension = _word(frame, FRAME_EXTENSION)
        if extension != 0 and _word(extension, EXTENSION_TYPE) & 0xFFFFFFFF == METADATA:
            return in_python(frame)
        if raises((_word(frame, FRAME_ARGUMENTS), _word(frame, FRAME_RESULTS))):
            return in_python(frame)
        return 0

    return handler


class _ErrorArguments(Structure):
    _fields_ = (("size", c_size_t), ("extension", c_void_p), ("message", c_char_p), ("code", c_int))


def _python_handler(
    module: ModuleType, kind: str, real: np.dtype[Any], ranks: Ranks
) -> Callable[[int], int]:
    """Make the function that answers XLA's question for the version, or makes the error of a kernel
    that raised: calling the module's function again gives its message."""

    def handler(frame: int) -> int:
        words = _words(frame, FRAME_RESULTS + 1)
        if words[FRAME_EXTENSION]:
            _answer_version(words)
            return 0
        message = f"{module.__name__}: {kind} failed"
        try:
            arguments = _arguments(words, real, ranks)
            getattr(module, kind)(*interface_of(module).grouped(kind, arguments))
        except Exception as error:  # XLA, the caller, would ignore it
            message = f"{type(error).__name__}: {error}"
        return _create_error(words[FRAME_API], message)

    return handler


def _words(address: int, length: int) -> Any:
    """View memory as 64-bit words."""
    return (c_int64 * length).from_address(address)


def _answer_version(frame: Any) -> None:
    """Write the version of the FFI that the handler is for: XLA's own if its layout is known,
    OLDEST_VERSION if XLA does not say. XLA refuses any other."""
    version = OLDEST_VERSION
    if frame[FRAME_API]:
        version = _words(frame[FRAME_API], API_VERSION + 1)[API_VERSION]
    if version not in KNOWN_VERSIONS or frame[FRAME_SIZE] < FRAME_BYTES:
        version = UNKNOWN_VERSION
    extension = _words(frame[FRAME_EXTENSION], EXTENSION_METADATA + 1)
    metadata = _words(extension[EXTENSION_METADATA], METADATA_VERSION + 1)
    metadata[METADATA_VERSION] = version


def _arguments(frame: Any, real: np.dtype[Any], ranks: Ranks) -> list[np.ndarray]:
    """View the buffers that a kernel was called with as arrays."""
    arrays = []
    for buffer, rank in zip(_words(frame[FRAME_ARGUMENTS], len(ranks)), ranks, strict=True):
        words = _words(buffer, BUFFER_LENGTHS + 1)
        shape = tuple(_words(words[BUFFER_LENGTHS], rank))
        size = prod(shape) * real.itemsize
        memory = (c_char * size).from_address(words[BUFFER_DATA]) if size else b""
        arrays.append(np.ndarray(shape, real, memory))
    return arrays


def _create_error(api: int, message: str) -> int:
    """Create an error, which XLA owns, and return its address."""
    create = CFUNCTYPE(c_int64, c_void_p)(_words(api, API_CREATE_ERROR + 1)[API_CREATE_ERROR])
    size = _ErrorArguments.code.offset + _ErrorArguments.code.size
    arguments = _ErrorArguments(size, None, message.encode(), INVALID_ARGUMENT)
    return int(create(byref(arguments)))
