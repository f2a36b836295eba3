"""Modules for CUDA devices without a device: host code on Numba's own arrays, whose memory is not
there, and launches that only look at the types of what kernels are given."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from numba import cuda
from numba.core.sigutils import normalize_signature

from tests.packages import set_everywhere

REALS = ("float64", "float32")
Launches = list[tuple[str, str, tuple[Any, ...]]]
"""The kernel, the precision and the arguments of each launch."""


class Stream:
    """A stream of a device; `waits` has those that were waited for, by their addresses."""

    waits: ClassVar[list[int]] = []

    def __init__(self, address: int) -> None:
        self.address = self.ptr = address

    def __int__(self) -> int:
        return self.address

    def synchronize(self) -> None:
        self.waits.append(self.address)


def device_array(shape: Any, dtype: Any = np.float64, stream: Any = 0) -> Any:
    """One of Numba's arrays on a device, with an address but no memory."""
    arrays, driver = cuda.devicearray, cuda.cudadrv.driver
    form = arrays.prepare_shape_strides_dtype(shape, None, np.dtype(dtype), "C")
    pointer = driver.binding.CUdeviceptr(next(_addresses))
    memory = driver.MemoryPointer(None, pointer, size=math.prod(form[0]) * form[2].itemsize)
    return arrays.DeviceNDArray(*form, stream=0, gpu_data=memory)


_addresses = itertools.count(1 << 20, 1 << 20)


@contextmanager
def dry(module: ModuleType) -> Iterator[Launches]:
    """A module whose launches are noted only; what comes from the device is zero.

    Each kernel has to be given what its signature says, or it would be compiled anew for that, as
    something that was never looked at."""
    devices = cuda.cudadrv.devices
    context = SimpleNamespace(device=SimpleNamespace(id=0), create_external_stream=Stream)
    kernels: dict[Any, list[str]] = {}
    for name, (kernel, _) in module.KERNELS.items():
        kernels.setdefault(kernel, []).append(name)
    launches: Launches = []

    def to_device(values: np.ndarray, stream: Any = 0) -> Any:
        return device_array(values.shape, values.dtype)

    def copy_to_host(self: Any, stream: Any = 0) -> np.ndarray:
        return np.zeros(self.shape, self.dtype)

    def start(kernel: Any, blocks: int, threads: Any, run: Any, arguments: Any) -> None:
        given = tuple(map(kernel.typeof_pyval, arguments))
        for name, real in itertools.product(kernels[kernel], REALS):
            signature = module.SIGNATURES[name].replace("real", real)
            if given == normalize_signature(signature)[0]:
                launches.append((name, real, arguments))
                return
        expected = [module.SIGNATURES[name] for name in kernels[kernel]]
        raise AssertionError(f"{kernels[kernel][0]}{given}, expected one of {expected}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "get_context", lambda: context)
        patch.setattr(cuda.api, "current_context", lambda: context)
        patch.setattr(devices._runtime, "ensure_context", nullcontext)
        patch.setattr(cuda, "is_available", lambda: True)
        patch.setattr(cuda, "device_array", device_array)
        patch.setattr(cuda, "to_device", to_device)
        patch.setattr(cuda, "default_stream", lambda: Stream(0))
        patch.setattr(cuda, "get_current_device", lambda: context.device)
        patch.setattr(cuda.devicearray.DeviceNDArray, "copy_to_host", copy_to_host)
        set_everywhere(patch, module, "cuda.base._cupy", None)
        set_everywhere(patch, module, "cuda.base._start", start)
        yield launches
