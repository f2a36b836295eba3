"""Verification of modules for CUDA devices where there is none: in Numba's simulator of one.

Numba reads at its import whether it is to simulate, so that is done in a process of its own.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import numpy as np
import scipy

from derivatrix.runtime.errors import LoadError, MissingPackageError
from derivatrix.runtime.report import Report, reported
from derivatrix.runtime.support import with_support
from derivatrix.runtime.workers import Workers

PLACE = "Numba's simulator of a device"
ENVIRONMENT = {"NUMBA_ENABLE_CUDASIM": "1"}
VERIFIED = "derivatrix.runtime.verify:verified"
"""What the process that simulates a device runs."""
_NUMPY = {
    name: getattr(np, name)
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos"),
        *("cosh", "exp", "expm1", "floor", "fmod", "hypot", "ldexp", "log", "log1p", "log2"),
        *("pow", "sin", "sinh", "sqrt", "tan", "tanh"),
    )
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


def require_numba_cuda(name: str) -> None:
    """Raise MissingPackageError where what a module for devices needs is not installed: what Numba
    has itself is older, and its simulator lacks much."""
    if find_spec("numba_cuda") is None:
        raise MissingPackageError(
            f"{name}: modules for the target cuda are verified and run with numba-cuda, which is "
            "not installed: pip install 'derivatrix[cuda]', or build with --no-verify"
        )


@contextmanager
def as_on_device(module: ModuleType) -> Iterator[None]:
    """A module's kernels, where they are simulated, with the arithmetic and the memory of a
    device."""
    if not simulating():
        yield
        return
    # imports Numba
    from derivatrix.templates.support.internals.verification import memory_as_on_device

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


def verify_simulated(
    module: ModuleType, sizes: Mapping[str, int], seed: int, thorough: bool
) -> Report:
    """The report of the module, from a process that simulates a device.

    Raises LoadError where the module has no file, and VerificationError where that process ends.
    """
    path = getattr(module, "__file__", None)
    if path is None:
        raise LoadError(f"{module.__name__}: a module without a file cannot be verified")
    options = {"sizes": dict(sizes), "seed": seed, "thorough": thorough}
    argument = {"path": os.fspath(path), "options": options}
    with Workers(1, ENVIRONMENT) as workers:
        (answer,) = workers.map(VERIFIED, [argument], lambda at_work, done: None)
    return reported(module.__name__, answer)
