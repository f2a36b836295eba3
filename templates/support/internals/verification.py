"""What the runtime does with compiled code: the arrays of a simulated device, and kernels that are
called with the arrays of other programs. No generated module needs this file."""

# mypy: allow-untyped-defs

import importlib
import sys
import threading

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .memory import BYTES, view


def memory_as_on_device():
    """What to set in Numba's simulator of a device, as (owner, name, value), so that what nothing
    was written to is not zero by luck, and threads that ask at the same time share memory."""
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
    """An array of nan, or of whole numbers that are no indices."""
    kind = np.dtype(getattr(dtype, "name", dtype))
    return np.full(shape, np.nan if kind.kind in "fc" else np.iinfo(kind).min, kind)


@intrinsic
def word_at(context, address, place):
    """The 64-bit word at a place, counted in words, from an address."""

    def generate(context, builder, signature, values):
        return word(builder, *values)

    return types.int64(types.int64, types.int64), generate


def word(builder, address, place):
    pointer = builder.inttoptr(address, ir.IntType(64).as_pointer())
    return builder.load(builder.gep(pointer, [place]))


def called_with_buffers(kernel, kinds, data, lengths):
    """What compiled code calls with the address of a list of buffers' addresses for each of `kinds`
    to have a kernel, at an address, called with their arrays and numbers; whether it raised.

    kinds: a tuple of types for each list. data, lengths: where a buffer has the address of its
    numbers, and that of its axes' lengths, in words."""
    every = [kind for some in kinds for kind in some]

    @intrinsic
    def call(context, lists):
        def generate(context, builder, signature, values):
            constant = ir.IntType(64)
            passed = []
            for number, some in enumerate(kinds):
                addresses = builder.extract_value(values[0], number)
                for place, kind in enumerate(some):
                    buffer = word(builder, addresses, constant(place))
                    first = builder.inttoptr(word(builder, buffer, constant(data)), BYTES)
                    if not isinstance(kind, types.Array):
                        pointer = context.get_value_type(kind).as_pointer()
                        passed.append(builder.load(builder.bitcast(first, pointer)))
                        continue
                    axes = word(builder, buffer, constant(lengths))
                    shape = [word(builder, axes, constant(axis)) for axis in range(kind.ndim)]
                    passed.append(view(context, builder, kind, first, shape))
            called = context.call_conv.get_function_type(types.none, every)
            callee = builder.inttoptr(constant(kernel), called.as_pointer())
            status, _ = context.call_conv.call_function(builder, callee, types.none, every, passed)
            return status.is_error

        return types.boolean(lists), generate

    return call
