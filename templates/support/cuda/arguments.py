"""What the public functions of a generated module for CUDA devices do around their kernels.

Names start with an underscore so that no input's name hides one.
"""

# mypy: allow-untyped-defs

import sys
from contextlib import ExitStack
from itertools import combinations

import numpy as np
from numba import cuda

from ..common.arguments import (
    _FLOAT32,
    _FLOAT64,
    _describe,
    _number_array,
    _out_arrays,
    _raise_shape_error,
    _require_destination,
    _shape_text,
)
from ..internals.launches import address
from .base import SIMULATED, _cupy, _Run, device_number

_CUDA_DEVICE = 2
"""DLPack's number for the memory of CUDA devices."""


def _library(value):
    """The package of an array on a device, such as "cupy"; "" for what is not on one."""
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
"""Streams by the device and their address there, since launches are kept by streams."""


def _require_device(function):
    """Raise unless there is a device to run on."""
    if _ready:
        return
    if not cuda.is_available():
        told = getattr(cuda, "cuda_error", lambda: None)() or "none was found"
        reason = " ".join(str(told).split()).rstrip(".")
        raise RuntimeError(
            f"{function}: no CUDA device can be used ({reason}); "
            "the module for the target cpu computes the same"
        )
    _ready.append(True)


def _stream_at(address):
    """The stream of the device in use that is at an address, 0 for the default stream."""
    key = device_number(), address
    if key not in _streams:
        _streams[key] = cuda.external_stream(address) if address else cuda.default_stream()
    return _streams[key]


def _on_device(function, name, value, library, own):
    """An array of a device as Numba's, of real numbers, once it is there: packages other than
    `own`, on whose stream the run is, may have it still in the making."""
    if library == "torch":
        value = value.detach()
        if own != library:
            _torch_stream(value).synchronize()
    if library == "jax":
        value.block_until_ready()
    if library not in ("cupy", "numba", "torch") and not hasattr(value, "__cuda_array_interface__"):
        value = _through_cupy(function, name, value).from_dlpack(value)
    array = _as_array(value, wait=library != own or library not in ("cupy", "torch"))
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{function}: argument {name} is an array of {array.dtype} on a device; "
            "expected real numbers"
        )
    return array


def _as_array(value, wait=False):
    """An array on a device as the kernels take it, of CuPy where there is CuPy, else of Numba. What
    says on which stream it is in the making is waited for, by Numba if `wait`, by CuPy always."""
    if _cupy is None:
        return value if hasattr(value, "copy_to_host") else cuda.as_cuda_array(value, sync=wait)
    if isinstance(value, _cupy.ndarray):
        return value
    kind = _TORCH_REAL.get(str(value.dtype))
    if kind is None or not value.is_contiguous():
        return _cupy.asarray(value)
    # by PyTorch's own interface that takes several times as long
    size, device = value.numel() * value.element_size(), value.device.index
    memory = _cupy.cuda.UnownedMemory(value.data_ptr(), size, value, device)
    return _cupy.ndarray(tuple(value.shape), kind, _cupy.cuda.MemoryPointer(memory, 0))


_TORCH_REAL = {"torch.float64": _FLOAT64, "torch.float32": _FLOAT32}


def _torch_stream(value):
    """PyTorch's stream for the device of a tensor."""
    return sys.modules["torch"].cuda.current_stream(value.device)


def _through_cupy(function, name, value):
    """CuPy, for what nothing else can do."""
    if _cupy is None:
        raise TypeError(
            f"{function}: argument {name} is {type(value).__name__} of a device that is not a "
            "C-contiguous array of float64 or float32 with __cuda_array_interface__, which the "
            "kernels take; install CuPy to have it converted"
        )
    return _cupy


def _overlap(first, second):
    """Whether two arrays share memory, those on a device as the kernels take them."""
    on_host = [isinstance(each, np.ndarray) for each in (first, second)]
    if any(on_host):
        return all(on_host) and np.shares_memory(first, second)
    if SIMULATED:
        return False  # simulated arrays have no addresses
    starts = address(first), address(second)
    stops = [s + a.size * a.dtype.itemsize for s, a in zip(starts, (first, second), strict=True)]
    return max(starts) < min(stops)


class _Call(_Run):
    """The run of a public function: its arguments are on the device, its results go where the
    caller's arrays are.

    function: the declared function's name; expected: what `_raise_shape_error` takes; failures:
    what is wrong where a check fails, in order."""

    def __init__(self, function, expected, values, failures):
        _require_device(function)
        libraries = [_library(value) for value in values]
        self.function = function
        self.expected = expected
        self.texts = failures
        self.library = next(filter(None, libraries), "")
        self.likeness = values[libraries.index(self.library)]
        self.given = list(zip(values, libraries, strict=True))

    def __enter__(self):
        with ExitStack() as stack:
            stack.enter_context(np.errstate(divide="ignore", invalid="ignore"))
            number = self._device()
            if number != device_number():
                stack.enter_context(cuda.gpus[number])
            address = self._address()
            current = _cupy and _cupy.cuda.get_current_stream()
            if current and current.ptr != address:
                if any(library == "cupy" for _, library in self.given):
                    current.synchronize()
                stack.enter_context(_cupy.cuda.Stream.from_external(_stream_at(address)))
            super().__init__(_FLOAT64, _stream_at(address), len(self.texts), address)
            self.context = stack.pop_all()
        return self

    def __exit__(self, *raised):
        self.context.close()

    def _device(self):
        """The number of the caller's device."""
        if self.library == "torch":
            return self.likeness.device.index
        return self.likeness.device.id if self.library == "cupy" else device_number()

    def _address(self):
        """The caller's stream."""
        if self.library == "torch":
            return _torch_stream(self.likeness).cuda_stream
        return _cupy.cuda.get_current_stream().ptr if self.library == "cupy" else 0

    def take(self):
        """The arguments as the kernels take them: C-contiguous arrays on the device, of one type,
        numbers for rank 0."""
        shapes, _, _ = self.expected
        arrays = [
            _on_device(self.function, name, value, library, self.library)
            if library
            else _number_array(self.function, name, value)
            for (name, _), (value, library) in zip(shapes, self.given, strict=True)
        ]
        self.shapes = [array.shape for array in arrays]
        if any(len(a.shape) != len(shape) for a, (_, shape) in zip(arrays, shapes, strict=True)):
            self.refuse()
        kinds = {a.dtype for a in arrays if a.shape} or {a.dtype for a in arrays}
        self.dtype = _FLOAT32 if kinds == {_FLOAT32} else _FLOAT64
        self.arguments = [
            self._argument(name, array, *given)
            for (name, _), array, given in zip(shapes, arrays, self.given, strict=True)
        ]
        return self.arguments

    def _argument(self, name, array, value, library):
        if not array.shape:
            return self.dtype.type(self.fetched(array) if library else array)
        if not library:
            return self.put(array, self.dtype)
        if array.dtype == self.dtype and array.flags["C_CONTIGUOUS"]:
            return array
        return _through_cupy(self.function, name, value).ascontiguousarray(array, self.dtype)

    def refuse(self):
        """Raise ValueError for the arguments' shapes."""
        arrays = [np.broadcast_to(0.0, shape) for shape in self.shapes]
        _raise_shape_error(self.function, self.expected, arrays)

    def results(self, out, shapes):
        """Arrays on the device for results of these shapes; those of rank 0 have one entry."""
        self.out = out
        self.foreign = False
        self.shaped = shapes
        *_, names = self.expected
        if out is None:
            self.owners = list(map(self._fresh, shapes))
            return list(map(_entries, self.owners, shapes))
        self.owners = _out_arrays(self.function, names, out)
        arrays = list(map(self._destination, names, self.owners, shapes))
        places = [
            owner if isinstance(owner, np.ndarray) else array
            for owner, array in zip(self.owners, arrays, strict=True)
        ]
        for (name, place), (other, its_place) in combinations(zip(names, places, strict=True), 2):
            if _overlap(place, its_place):
                raise ValueError(f"{self.function}: {name} and {other} share memory")
        return arrays

    def _fresh(self, shape):
        """A new array of the caller's package."""
        if self.library == "torch":
            torch = sys.modules["torch"]
            kind = torch.float32 if self.dtype == _FLOAT32 else torch.float64
            return torch.empty(shape, dtype=kind, device=self.likeness.device)
        if self.library in ("", "numba"):
            return self.empty(shape or (1,))
        return _through_cupy(self.function, "of the result", self.likeness).empty(shape, self.dtype)

    def _destination(self, name, owner, shape):
        """Where the kernels write what goes into an array of `out`."""
        library = _library(owner)
        if not library:
            _require_destination(self.function, name, owner, shape, self.dtype)
            return self.empty(shape or (1,))
        self.foreign = self.foreign or library != self.library
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
        """The results, in the caller's arrays or in new ones of the caller's package."""
        if self.texts:
            for position, code in enumerate(self.fetched(self.failures)):
                if code:
                    text = self.texts[position] + self.told.get(position, "")
                    raise np.linalg.LinAlgError(f"{self.function}: {text}")
        if self.foreign:
            self.stream.synchronize()
        return list(map(self._delivered, self.owners, results, self.shaped))

    def _delivered(self, owner, result, shape):
        if self.out is not None:
            if not _library(owner):
                owner[...] = self.fetched(result).reshape(owner.shape)
            return owner
        if self.library == "":
            copy = self.fetched(result)
            return copy if shape else copy[0]
        if self.library == "numba":
            array = owner if shape else owner.reshape(())
            return array if _cupy is None else cuda.as_cuda_array(array, sync=False)
        return sys.modules["jax"].dlpack.from_dlpack(owner) if self.library == "jax" else owner


def _entries(owner, shape):
    """An array of the caller's package, of one entry if it has no axes, as the kernels take it."""
    array = _as_array(owner)
    return array if shape else array.reshape((1,))
