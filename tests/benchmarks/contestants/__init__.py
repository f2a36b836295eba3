"""Who takes part. A contestant lives in a process of its own, where alone it is imported."""

from __future__ import annotations

import importlib
from typing import Any

from tests.benchmarks.contestants.base import Contestant

PLACES = {
    "derivatrix": ("derivatrix", "Derivatrix"),
    "by-hand": ("by_hand", "ByHand"),
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

CONTESTANTS = tuple(PLACES)
FRAMEWORKS = CONTESTANTS[2:-2]
"""Those that the ratio compares derivatrix with: like it they return new arrays."""


def find(name: str, threads: int) -> Contestant:
    """The contestant of that name, set up. Raises ImportError where it is not installed."""
    module, kind = PLACES[name]
    place: Any = importlib.import_module(f"{__name__}.{module}")
    contestant: Contestant = getattr(place, kind)(threads)
    return contestant
