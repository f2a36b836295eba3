"""What verification changes of compiled code: marks in a copy of a module, and the arrays of a
simulated device. No generated module needs this file."""

# mypy: allow-untyped-defs

import importlib
import sys
import threading

import numpy as np
from numba import types
from numba.extending import intrinsic


def byte_setter(address, compiled):
    """The function of kernels that sets the byte at a place, counted from the address, to 1. The
    places are added to `compiled`, a set, when the kernels are."""

    @intrinsic(prefer_literal=True)
    def store(context, place):
        compiled.add(place.literal_value)

        def generate(context, builder, signature, values):
            byte = context.get_value_type(types.uint8)
            start = context.get_constant(types.intp, address + place.literal_value)
            builder.store(byte(1), builder.inttoptr(start, byte.as_pointer()))
            return context.get_dummy_value()

        return types.void(place), generate

    return store


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
