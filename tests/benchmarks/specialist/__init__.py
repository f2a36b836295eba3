"""The rows' derivatives as a specialist for Numba writes them by hand."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

MODULES = ("products", "classifiers", "factorisations", "networks", "solves", "elementwise", "cameras", "mixtures", "filters", "matrix_functions")


def kernels() -> dict[str, Callable[..., Any]]:
    """Row's name -> function of the row's arguments, which returns what the row's closed form
    does."""
    found: dict[str, Callable[..., Any]] = {}
    for module in MODULES:
        found |= importlib.import_module(f"{__name__}.{module}").KERNELS
    return found
