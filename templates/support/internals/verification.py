"""The runtime's uses of Numba's internals: arrays of a simulated device, and calls of kernels with
arrays of other programs. No generated module needs this file."""

# mypy: allow-untyped-defs

import importlib
import sys
import threading

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .memory import BYTES, view, word


def memory_as_on_device():
    """Return replacements of attributes of Numba's simulator of a device, (owner, name, value).
    With these, memory that no thread has written is not zero by luck, and threads that request
    memory at the same time share it."""
    cuda = importlib.import_module("numba.cuda")
    kernels = importlib.import_module("numba.cuda.simulator.kernelapi")
    lock = threading.Lock()

    def shared_array(self, shape, dtype):
        caller = sys._getframe(1)
        place = caller.f_code.co_filename, caller.f_lineno
        with lock:  # the simulator's own method may give threads an array each
            if place not in self._allocations:
                self._allocations[place] = undefined(shape, dtype)
            return self._allocations[place]

    def local_array(self, shape, dtype):
        return undefined(shape, dtype)

    def device_array(shape, dtype, stream=0):
        return cuda.to_device(undefined(shape, dtype), stream=stream)

    return [
        (kernels.FakeCUDAShared, "array", shared_array),
        (kernels.FakeCUDALocal, "array", local_array),
        (cuda, "device_array", device_array),
    ]


def undefined(shape, dtype):
    """Make an array of nan, or of integers that are no valid indices."""
    kind = np.dtype(getattr(dtype, "name", dtype))
    return np.full(shape, np.nan if kind.kind in "fc" else np.iinfo(kind).min, kind)


@intrinsic
def word_at(context, address, place):
    """Load the 64-bit word `place` words after an address."""

    def generate(context, builder, signature, values):
        return word(builder, *values)

    return types.int64(types.int64, types.int64), generate


def called_with_buffers(kernel, kinds, data, lengths):
    """Make the function by which compiled code calls a kernel, at an address, with the buffers of
    other programs. Its arguments are the addresses of lists of buffers' addresses; it returns
    whether the kernel raised.

    kinds: a tuple of types for each list. data, lengths: the words of a buffer with the addresses
    of its numbers and of its axes' lengths."""
    flat = [kind for list_types in kinds for kind in list_types]

    @intrinsic
    def call(context, lists):
        def generate(context, builder, signature, values):
            constant = ir.IntType(64)
            passed = []
            for number, list_types in enumerate(kinds):
                addresses = builder.extract_value(values[0], number)
                for place, kind in enumerate(list_types):
                    buffer = word(builder, addresses, constant(place))
                    start = builder.inttoptr(word(builder, buffer, constant(data)), BYTES)
                    if not isinstance(kind, types.Array):
                        pointer = context.get_value_type(kind).as_pointer()
                        passed.append(builder.load(builder.bitcast(start, pointer)))
                        continue
                    axes = word(builder, buffer, constant(lengths))
                    shape = [word(builder, axes, constant(axis)) for axis in range(kind.ndim)]
                    passed.append(view(context, builder, kind, start, shape))
            function_type = context.call_conv.get_function_type(types.none, flat)
            callee = builder.inttoptr(constant(kernel), function_type.as_pointer())
            status, _ = context.call_conv.call_function(builder, callee, types.none, flat, passed)
            return status.is_error

        return types.boolean(lists), generate

    return call
