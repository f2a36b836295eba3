"""Verification of modules for CUDA devices on machines without one: in Numba's simulator.

Numba decides at its import whether to simulate, so a separate process does it.
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
    """Make a module `math` that computes as a device does: infinity or nan where Python raises,
    and results in the precision of the argument."""
    special = {name: getattr(scipy.special, scipy_name) for name, scipy_name in _SCIPY.items()}
    return SimpleNamespace(**{**vars(math), **_NUMPY, **special})


def simulating() -> bool:
    """Return whether Numba simulates a device in this process."""
    return bool(importlib.import_module("numba").config.ENABLE_CUDASIM)


def has_device() -> bool:
    """Return whether this process can use a device."""
    return not simulating() and bool(importlib.import_module("numba.cuda").is_available())


def needs_simulation(module: ModuleType) -> bool:
    """Return whether a module's kernels are for a device, and this process can use none."""
    is_for_devices = getattr(module, "TARGET", "cpu") == "cuda"
    return is_for_devices and not simulating() and not has_device()


def require_numba_cuda(name: str) -> None:
    """Raise MissingPackageError if numba-cuda is not installed. Numba's built-in `numba.cuda` is no
    substitute: it is older, and its simulator lacks much."""
    if find_spec("numba_cuda") is None:
        raise MissingPackageError(
            f"{name}: modules for the target cuda are verified and run with numba-cuda, which is "
            "not installed: pip install 'derivatrix[cuda]', or build with --no-verify"
        )


@contextmanager
def as_on_device(module: ModuleType) -> Iterator[None]:
    """Give a module's simulated kernels the arithmetic and the memory of a device; a real device
    has them anyway."""
    if not simulating():
        yield
        return
    # here, as it imports Numba
    from derivatrix.templates.support.internals.verification import memory_as_on_device

    patches = memory_as_on_device()
    patches += [
        (part, "math", device_math()) for part in with_support(module) if hasattr(part, "math")
    ]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    try:
        for patch in patches:
            setattr(*patch)
        with np.errstate(all="ignore"):
            yield
    finally:
        for original in originals:
            setattr(*original)


def verify_simulated(
    module: ModuleType, sizes: Mapping[str, int], seed: int, thorough: bool
) -> Report:
    """Verify a module in a process that simulates a device.

    Raises LoadError if the module has no file, VerificationError if that process crashes."""
    path = getattr(module, "__file__", None)
    if path is None:
        raise LoadError(f"{module.__name__}: a module without a file cannot be verified")
    options = {"sizes": dict(sizes), "seed": seed, "thorough": thorough}
    argument = {"path": os.fspath(path), "options": options}
    with Workers(1, ENVIRONMENT) as workers:
        call = "derivatrix.runtime.verify:verify_in_simulator"
        (answer,) = workers.map(call, [argument], lambda running, count: None)
    return reported(module.__name__, answer)
