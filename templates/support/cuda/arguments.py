"""Conversion of arguments before the kernels of a device run, and delivery of their results.

Names start with an underscore, which no name of a declaration does: none can hide them.
"""

# mypy: allow-untyped-defs

import math
import sys
from contextlib import ExitStack
from itertools import combinations

import numpy as np
from numba import cuda

from ..common.arguments import (
    _FLOAT32,
    _FLOAT64,
    _batch_axes,
    _describe,
    _number_array,
    _of_shape,
    _out_arrays,
    _raise_shape_error,
    _require_destination,
    _shape_text,
    _with_one_batch_axis,
)
from ..common.module import BATCH_AXES
from ..internals.launches import address
from .base import SIMULATED, _cupy, _Run, device_number

_CUDA_DEVICE = 2
"""DLPack's number for the memory of CUDA devices."""


def _library(value):
    """The package of an array on a device, such as "cupy"; "" for a value that is on no device."""
    package = type(value).__module__.partition(".")[0]
    if package == "cupy":
        return package
    if package == "torch":
        return package if value.is_cuda else ""
    if hasattr(value, "copy_to_host"):
        return "numba"
    package = {"jaxlib": "jax"}.get(package, package)
    if hasattr(value, "__cuda_array_interface__"):
        return package
    place = getattr(value, "__dlpack_device__", None)
    return package if place is not None and place()[0] == _CUDA_DEVICE else ""


_ready: list = []
"""Not empty once a device was found."""
_streams: dict = {}
"""(device, handle) -> stream: prepared launches are cached by the stream object."""


def _require_device(function):
    """Raise RuntimeError unless a device can be used."""
    if _ready:
        return
    if not cuda.is_available():
        error = getattr(cuda, "cuda_error", lambda: None)() or "none was found"
        reason = " ".join(str(error).split()).rstrip(".")
        raise RuntimeError(
            f"{function}: no CUDA device can be used ({reason}); "
            "the module for the target cpu computes the same"
        )
    _ready.append(True)


def _stream_at(address):
    """The stream with this handle on the device in use; 0 for the default stream."""
    key = device_number(), address
    if key not in _streams:
        _streams[key] = cuda.external_stream(address) if address else cuda.default_stream()
    return _streams[key]


def _on_device(function, name, value, library, run_library):
    """Convert an array on a device to one that kernels take. It waits for arrays of packages other
    than `run_library`, on whose stream the run is: they may not be computed yet."""
    if library == "torch":
        value = value.detach()
        if run_library != library:
            _torch_stream(value).synchronize()
    if library == "jax":
        value.block_until_ready()
    if library not in ("cupy", "numba", "torch") and not hasattr(value, "__cuda_array_interface__"):
        value = _through_cupy(function, name, value).from_dlpack(value)
    wait = library != run_library or library not in ("cupy", "torch")
    array = _as_array(value, wait)
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{function}: argument {name} is an array of {array.dtype} on a device; "
            "expected real numbers"
        )
    return array


def _as_array(value, wait=False):
    """View an array on a device as CuPy's, or without CuPy as Numba's. An array that names its
    stream is waited for: by Numba if `wait`, by CuPy always."""
    if _cupy is None:
        return value if hasattr(value, "copy_to_host") else cuda.as_cuda_array(value, sync=wait)
    if isinstance(value, _cupy.ndarray):
        return value
    kind = _TORCH_REAL.get(str(value.dtype))
    if kind is None or not value.is_contiguous():
        return _cupy.asarray(value)
    # PyTorch's __cuda_array_interface__ takes several times as long
    size, device = value.numel() * value.element_size(), value.device.index
    memory = _cupy.cuda.UnownedMemory(value.data_ptr(), size, value, device)
    return _cupy.ndarray(tuple(value.shape), kind, _cupy.cuda.MemoryPointer(memory, 0))


_TORCH_REAL = {"torch.float64": _FLOAT64, "torch.float32": _FLOAT32}


def _torch_stream(value):
    """PyTorch's stream for the device of a tensor."""
    return sys.modules["torch"].cuda.current_stream(value.device)


def _through_cupy(function, name, value):
    """CuPy, for a conversion that needs it. Raises TypeError if it is not installed."""
    if _cupy is None:
        raise TypeError(
            f"{function}: argument {name} is {type(value).__name__} of a device that is not a "
            "C-contiguous array of float64 or float32 with __cuda_array_interface__, which the "
            "kernels take; install CuPy to have it converted"
        )
    return _cupy


def _overlap(a, b):
    """Check whether two arrays, on the host or as kernels take them, share memory."""
    arrays = a, b
    on_host = [isinstance(array, np.ndarray) for array in arrays]
    if any(on_host):
        return all(on_host) and np.shares_memory(a, b)
    if SIMULATED:
        return False  # simulated arrays have no addresses
    starts = address(a), address(b)
    stops = [s + array.size * array.dtype.itemsize for s, array in zip(starts, arrays, strict=True)]
    return max(starts) < min(stops)


class _Call(_Run):
    """The run of a public function, on the device and stream of the caller's arrays.

    expected: an `_Expected`; failures: the error text of each check, in order."""

    def __init__(self, expected, values, failures):
        _require_device(expected.function)
        libraries = [_library(value) for value in values]
        self.function = expected.function
        self.expected = expected
        self.failure_texts = failures
        self.library = next(filter(None, libraries), "")
        self.example = values[libraries.index(self.library)]
        self.values = list(zip(values, libraries, strict=True))

    def __enter__(self):
        with ExitStack() as stack:
            stack.enter_context(np.errstate(divide="ignore", invalid="ignore"))
            number = self._device()
            if number != device_number():
                stack.enter_context(cuda.gpus[number])
            address = self._address()
            current = _cupy and _cupy.cuda.get_current_stream()
            if current and current.ptr != address:
                if any(library == "cupy" for _, library in self.values):
                    current.synchronize()
                stack.enter_context(_cupy.cuda.Stream.from_external(_stream_at(address)))
            super().__init__(_FLOAT64, _stream_at(address), len(self.failure_texts), address)
            self.context = stack.pop_all()
        return self

    def __exit__(self, *raised):
        self.context.close()

    def _device(self):
        """The number of the caller's device."""
        if self.library == "torch":
            return self.example.device.index
        return self.example.device.id if self.library == "cupy" else device_number()

    def _address(self):
        """The handle of the caller's stream."""
        if self.library == "torch":
            return _torch_stream(self.example).cuda_stream
        return _cupy.cuda.get_current_stream().ptr if self.library == "cupy" else 0

    def take(self):
        """Return the batch axes, and the arguments as C-contiguous arrays on the device, of one
        type and with one batch axis, and as numbers for rank 0."""
        shapes = self.expected.shapes
        arrays = [
            _on_device(self.function, name, value, library, self.library)
            if library
            else _number_array(self.function, name, value)
            for (name, _), (value, library) in zip(shapes, self.values, strict=True)
        ]
        self.shapes = [array.shape for array in arrays]
        axes = _batch_axes(self.expected, self.shapes)
        dtypes = {a.dtype for a in arrays if a.shape} or {a.dtype for a in arrays}
        self.dtype = _FLOAT32 if dtypes == {_FLOAT32} else _FLOAT64
        self.arguments = [
            self._argument(name, array, shape, axes, *value_and_library)
            for (name, shape), array, value_and_library in zip(
                shapes, arrays, self.values, strict=True
            )
        ]
        return axes, self.arguments

    def _argument(self, name, array, shape, axes, value, library):
        if not shape:
            return self.dtype.type(self.to_host(array) if library else array)
        is_batched, samples, rank = shape[0] == BATCH_AXES, math.prod(axes), len(shape) - 1
        if not library:
            merged = _with_one_batch_axis(array, axes, samples, rank) if is_batched else array
            return self.to_device(merged, self.dtype)
        core = array.shape[len(array.shape) - rank :]
        if is_batched and array.size != samples * math.prod(core):
            array = _through_cupy(self.function, name, value).broadcast_to(array, axes + core)
        if array.dtype != self.dtype or not array.flags["C_CONTIGUOUS"]:
            array = _through_cupy(self.function, name, value).ascontiguousarray(array, self.dtype)
        return array.reshape((samples, *core)) if is_batched else array

    def refuse(self):
        """Raise ValueError for the shapes of the arguments."""
        _raise_shape_error(self.expected, list(map(_of_shape, self.shapes)))

    def results(self, out, shapes):
        """Arrays on the device for results of these shapes; one entry for rank 0."""
        self.out = out
        self.has_foreign_out = False
        self.result_shapes = shapes
        names = self.expected.results
        if out is None:
            self.owners = list(map(self._fresh, shapes))
            return list(map(_entries, self.owners, shapes))
        self.owners = _out_arrays(self.expected, out)
        arrays = list(map(self._destination, names, self.owners, shapes))
        memories = [
            owner if isinstance(owner, np.ndarray) else array
            for owner, array in zip(self.owners, arrays, strict=True)
        ]
        for (name, memory), (other_name, other_memory) in combinations(
            zip(names, memories, strict=True), 2
        ):
            if _overlap(memory, other_memory):
                raise ValueError(f"{self.function}: {name} and {other_name} share memory")
        return arrays

    def _fresh(self, shape):
        """Allocate an array of the caller's package."""
        if self.library == "torch":
            torch = sys.modules["torch"]
            kind = torch.float32 if self.dtype == _FLOAT32 else torch.float64
            return torch.empty(shape, dtype=kind, device=self.example.device)
        if self.library in ("", "numba"):
            return self.empty(shape or (1,))
        return _through_cupy(self.function, "of the result", self.example).empty(shape, self.dtype)

    def _destination(self, name, owner, shape):
        """The array that the kernels write to for an array of `out`: a new one if that is on the
        host."""
        library = _library(owner)
        if not library:
            _require_destination(self.function, name, owner, shape, self.dtype)
            return self.empty(shape or (1,))
        self.has_foreign_out = self.has_foreign_out or library != self.library
        array = _on_device(self.function, name, owner, library, self.library)
        if array.shape != shape:
            raise ValueError(
                f"{self.function}: {name} has shape {_shape_text(array.shape)}; "
                f"expected {_shape_text(shape)}"
            )
        if array.dtype != self.dtype or not array.flags["C_CONTIGUOUS"]:
            raise TypeError(
                f"{self.function}: {name} is {_describe(owner)}; expected a C-contiguous array "
                f"of {self.dtype}"
            )
        if any(_overlap(array, argument) for argument in self.arguments if argument.shape):
            raise ValueError(f"{self.function}: {name} shares memory with an argument")
        return _entries(owner, shape)

    def delivered(self, results):
        """Raise LinAlgError for a failed check; return the results in the caller's arrays, or in
        new ones of the caller's package."""
        if self.failure_texts:
            for position, code in enumerate(self.to_host(self.failures)):
                if code:
                    text = self.failure_texts[position] + self.details.get(position, "")
                    raise np.linalg.LinAlgError(f"{self.function}: {text}")
        if self.has_foreign_out:
            self.stream.synchronize()
        return list(map(self._delivered, self.owners, results, self.result_shapes))

    def _delivered(self, owner, result, shape):
        if self.out is not None:
            if not _library(owner):
                owner[...] = self.to_host(result).reshape(owner.shape)
            return owner
        if self.library == "":
            copy = self.to_host(result)
            return copy if shape else copy[0]
        if self.library == "numba":
            array = owner if shape else owner.reshape(())
            return array if _cupy is None else cuda.as_cuda_array(array, sync=False)
        return sys.modules["jax"].dlpack.from_dlpack(owner) if self.library == "jax" else owner


def _entries(owner, shape):
    """View an array of the caller's package as kernels take it: with one entry if it has no
    axes."""
    array = _as_array(owner)
    return array if shape else array.reshape((1,))
