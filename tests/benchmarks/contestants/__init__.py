"""The contestants. Each has a process of its own, which alone imports it."""

from __future__ import annotations

import importlib
from typing import Any

from tests.benchmarks.contestants.base import Contestant

PLACES = {
    "derivatrix": ("derivatrix", "Derivatrix"),
    "by-hand": ("by_hand", "ByHand"),
    "specialist": ("specialist", "Specialist"),
    "jax": ("jax", "Jax"),
    "torch": ("torch", "Eager"),
    "torch-compile": ("torch", "Compiled"),
    "pytensor-numba": ("pytensor", "Numba"),
    "pytensor-c": ("pytensor", "C"),
    "casadi": ("casadi", "Casadi"),
    "autograd": ("autograd", "Autograd"),
    "derivatrix-kept": ("derivatrix", "Kept"),
    "casadi-kept": ("casadi", "Kept"),
}
"""Name -> module and class, in the order of the table's columns."""

ON_DEVICE = {
    "derivatrix": ("device", "Derivatrix"),
    "by-hand": ("device", "ByHand"),
    "jax": ("device_jax", "DeviceJax"),
    "torch": ("device_torch", "DeviceEager"),
    "torch-compile": ("device_torch", "DeviceCompiled"),
    "derivatrix-kept": ("device", "Kept"),
}
"""The contestants on a CUDA device."""

CONTESTANTS = tuple(PLACES)
FRAMEWORKS = CONTESTANTS[3:-2]
"""The contestants to which the ratio compares derivatrix: they return new arrays, too."""


def find(name: str, threads: int, device: str = "") -> Contestant:
    """The contestant of that name, set up. Raises ImportError where it is not installed."""
    module, kind = (ON_DEVICE if device else PLACES)[name]
    place: Any = importlib.import_module(f"{__name__}.{module}")
    contestant: Contestant = getattr(place, kind)(threads)
    return contestant
