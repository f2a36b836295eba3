"""Kernels for CUDA devices, started by the driver without what Numba does at each launch."""

# mypy: allow-untyped-defs

import ctypes
import importlib
import struct

import numpy as np

_LETTERS = {"int64": "q", "int32": "i", "float64": "d", "float32": "f"}
"""Of `struct`, for the numbers that kernels take."""
_BUFFER, _SIZE, _END = 1, 2, 0
"""What the driver calls the parts of a launch's parameters."""

_found: dict = {}


def launch(kernel, device, blocks, threads, stream, arguments):
    """Start a kernel on the device of this number, which is in use, with so many blocks of so many
    threads, on the stream at an address. Arrays among the arguments are C-contiguous ones of CuPy
    or Numba; what is compiled for their types and those of the numbers is kept.

    Raises RuntimeError where the driver refuses."""
    kinds = tuple([getattr(each, "dtype", None) or type(each) for each in arguments])
    key = kernel, device, kinds
    found = _found.get(key)
    if found is None:
        found = _found[key] = _Compiled(kernel, arguments)
    found.start(blocks, threads, stream, arguments)


def address(array):
    """Where the entries of an array on a device begin."""
    try:
        return array.data.ptr  # CuPy's: its interface takes several times as long
    except AttributeError:
        return array.__cuda_array_interface__["data"][0]


class _Compiled:
    """A kernel compiled for the types of some arguments, and memory for its parameters.

    Numba passes an array as words of 64 bits: two that are zero here, its size, the bytes of an
    entry, the address, its shape and its strides."""

    def __init__(self, kernel, arguments):
        self.name = kernel.__name__
        axes = [getattr(each, "ndim", 0) for each in arguments]
        self.arrays = [count > 0 for count in axes]
        likes = [
            np.empty((0,) * count, each.dtype) if count else each
            for count, each in zip(axes, arguments, strict=True)
        ]
        kinds = tuple(map(kernel.typeof_pyval, likes))
        letters = [
            "q" * (5 + 2 * count) if count else _LETTERS[str(kind)]
            for count, kind in zip(axes, kinds, strict=True)
        ]
        self.form = struct.Struct("@" + "".join(letters))
        self.free: list = []
        self.handle = int(kernel.compile(kinds)._codelibrary.get_cufunc().handle)
        self.driver = importlib.import_module("cuda.bindings.driver")

    def start(self, blocks, threads, stream, arguments):
        memory = self.free.pop() if self.free else _Parameters(self.form.size)
        self.form.pack_into(memory.words, 0, *self.values(arguments))
        shape = blocks, 1, 1, threads, 1, 1
        (result,) = self.driver.cuLaunchKernel(self.handle, *shape, 0, stream, 0, memory.address)
        self.free.append(memory)
        if result:
            _, name = self.driver.cuGetErrorName(result)
            raise RuntimeError(f"{self.name}: {name.decode()} at the launch of {blocks} blocks")

    def values(self, arguments):
        """The numbers that are the parameters."""
        found: list = []
        for argument, is_array in zip(arguments, self.arrays, strict=True):
            if is_array:
                size, width = argument.size, argument.dtype.itemsize
                found += 0, 0, size, width, address(argument), *argument.shape, *argument.strides
            else:
                found.append(argument)
        return found


class _Parameters:
    """Memory for the parameters of one launch at a time, and its address in the driver's form."""

    def __init__(self, size):
        self.words = ctypes.create_string_buffer(size)
        self.size = ctypes.c_size_t(size)
        places = ctypes.addressof(self.words), ctypes.addressof(self.size)
        self.parts = (ctypes.c_void_p * 5)(_BUFFER, places[0], _SIZE, places[1], _END)
        self.address = ctypes.addressof(self.parts)
