"""Launches of CUDA kernels by the driver, without Numba's work at each launch."""

# mypy: allow-untyped-defs

import ctypes
import importlib
import struct

import numpy as np

_LETTERS = {"int64": "q", "int32": "i", "float64": "d", "float32": "f"}
"""Type of a parameter -> its letter for `struct`."""
_BUFFER, _SIZE, _END = 1, 2, 0
"""The driver's marks of the parts of a launch's parameters."""

_compiled: dict = {}


def launch(kernel, device, blocks, threads, stream, arguments):
    """Start a kernel on the current device, whose number is `device`, on the stream at an address.
    Arrays among the arguments are C-contiguous arrays of CuPy or Numba. The compiled kernel is
    cached by the types of the arguments.

    Raises RuntimeError if the driver refuses the launch."""
    kinds = tuple([getattr(argument, "dtype", None) or type(argument) for argument in arguments])
    key = kernel, device, kinds
    compiled = _compiled.get(key)
    if compiled is None:
        compiled = _compiled[key] = _Compiled(kernel, arguments)
    compiled.start(blocks, threads, stream, arguments)


def address(array):
    """Return the address of the entries of an array on a device."""
    try:
        return array.data.ptr  # CuPy's: its interface takes several times as long
    except AttributeError:
        return array.__cuda_array_interface__["data"][0]


class _Compiled:
    """A kernel compiled for the types of some arguments, and memory for its parameters.

    Numba passes an array as 64-bit words: two zeros, its size, the bytes of an entry, the address,
    its shape and its strides."""

    def __init__(self, kernel, arguments):
        self.name = kernel.__name__
        axes = [getattr(argument, "ndim", 0) for argument in arguments]
        self.arrays = [count > 0 for count in axes]
        likes = [
            np.empty((0,) * count, argument.dtype) if count else argument
            for count, argument in zip(axes, arguments, strict=True)
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
        """List the words and numbers that are the parameters."""
        parameters: list = []
        for argument, is_array in zip(arguments, self.arrays, strict=True):
            if is_array:
                size, width = argument.size, argument.dtype.itemsize
                parameters += 0, 0, size, width, address(argument)
                parameters += *argument.shape, *argument.strides
            else:
                parameters.append(argument)
        return parameters


class _Parameters:
    """Memory for the parameters of one launch at a time, and its address in the driver's form."""

    def __init__(self, size):
        self.words = ctypes.create_string_buffer(size)
        self.size = ctypes.c_size_t(size)
        places = ctypes.addressof(self.words), ctypes.addressof(self.size)
        self.parts = (ctypes.c_void_p * 5)(_BUFFER, places[0], _SIZE, places[1], _END)
        self.address = ctypes.addressof(self.parts)
