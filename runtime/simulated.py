"""Verification of modules for CUDA devices where there is none: in Numba's simulator of one.

Numba reads at its import whether it is to simulate, so that is done in a process of its own.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import scipy

from derivatrix.runtime.errors import LoadError, VerificationError
from derivatrix.runtime.report import Report
from derivatrix.runtime.support import with_support
from derivatrix.runtime.workers import Crash, Workers

PLACE = "Numba's simulator of a device"
ENVIRONMENT = {"NUMBA_ENABLE_CUDASIM": "1"}
VERIFIED = "derivatrix.runtime.verify:verified"
"""What the process that simulates a device runs."""
_NUMPY = {
    **{name: getattr(np, f"arc{name[1:]}") for name in ("acos", "asin", "atan", "atan2")},
    **{name: getattr(np, f"arc{name[1:]}") for name in ("acosh", "asinh", "atanh")},
    **{name: getattr(np, name) for name in ("ceil", "copysign", "cos", "cosh", "exp", "expm1")},
    **{name: getattr(np, name) for name in ("floor", "fmod", "hypot", "ldexp", "log", "log1p")},
    **{name: getattr(np, name) for name in ("log2", "sin", "sinh", "sqrt", "tan", "tanh")},
    "pow": np.power,
}
_SCIPY = {"erf": "erf", "erfc": "erfc", "gamma": "gamma", "lgamma": "gammaln"}


def device_math() -> SimpleNamespace:
    """`math` as it is on a device: infinity or nan where Python raises, and results in the
    precision of the argument."""
    special = {name: getattr(scipy.special, other) for name, other in _SCIPY.items()}
    return SimpleNamespace(**{**vars(math), **_NUMPY, **special})


def simulating() -> bool:
    """Whether Numba simulates a device in this process."""
    return bool(importlib.import_module("numba").config.ENABLE_CUDASIM)


def has_device() -> bool:
    """Whether there is a device that this process can use."""
    return not simulating() and bool(importlib.import_module("numba.cuda").is_available())


def needs_simulation(module: ModuleType) -> bool:
    """Whether a module's kernels are for a device, and none can be used by this process."""
    is_for_devices = getattr(module, "TARGET", "cpu") == "cuda"
    return is_for_devices and not simulating() and not has_device()


@contextmanager
def as_on_device(module: ModuleType) -> Iterator[None]:
    """A module's kernels, where they are simulated, with the arithmetic and the memory of a
    device."""
    if not simulating():
        yield
        return
    changes = memory_as_on_device()
    changes += [
        (each, "math", device_math()) for each in with_support(module) if hasattr(each, "math")
    ]
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for change in changes:
            setattr(*change)
        with np.errstate(all="ignore"):
            yield
    finally:
        for change in kept:
            setattr(*change)


def memory_as_on_device() -> list[tuple[Any, str, Any]]:
    """What to set in the simulator, as (owner, name, value), so that what nothing was written to
    is not zero by luck, and threads that ask at the same time share memory."""
    cuda = importlib.import_module("numba.cuda")
    kernels = importlib.import_module("numba.cuda.simulator.kernelapi")
    lock = threading.Lock()

    def shared_array(self: Any, shape: Any, dtype: Any) -> np.ndarray:
        caller = sys._getframe(1)
        place = caller.f_code.co_filename, caller.f_lineno
        with lock:  # the simulator's own method may give threads an array each
            if place not in self._allocations:
                self._allocations[place] = undefined(shape, dtype)
            array: np.ndarray = self._allocations[place]
        return array

    def local_array(self: Any, shape: Any, dtype: Any) -> np.ndarray:
        return undefined(shape, dtype)

    def device_array(shape: Any, dtype: Any, stream: Any = 0) -> Any:
        return cuda.to_device(undefined(shape, dtype), stream=stream)

    return [
        (kernels.FakeCUDAShared, "array", shared_array),
        (kernels.FakeCUDALocal, "array", local_array),
        (cuda, "device_array", device_array),
    ]


def undefined(shape: Any, dtype: Any) -> np.ndarray:
    """An array of nan, or of whole numbers that are no indices."""
    kind = np.dtype(getattr(dtype, "name", dtype))
    return np.full(shape, np.nan if kind.kind in "fc" else np.iinfo(kind).min, kind)


def verify_simulated(module: ModuleType, sizes: Mapping[str, int], seed: int) -> Report:
    """The report of the module, from a process that simulates a device.

    Raises LoadError where the module has no file, and VerificationError where that process ends.
    """
    path = getattr(module, "__file__", None)
    if path is None:
        raise LoadError(f"{module.__name__}: a module without a file cannot be verified")
    argument = {"path": os.fspath(path), "sizes": dict(sizes), "seed": seed}
    with Workers(1, ENVIRONMENT) as workers:
        (answer,) = workers.map(VERIFIED, [argument], lambda at_work, done: None)
    if isinstance(answer, Exception):
        raise answer
    if isinstance(answer, Crash):
        error = VerificationError(f"{module.__name__}: verification broke off: {answer.reason}")
        if answer.trace:
            error.add_note(answer.trace)
        raise error
    return Report.from_dict(answer)
