"""The rows' derivatives as a specialist for Numba writes them by hand.

From the closed forms, for these rows alone: what is known of a row (its sizes where they are
fixed, symmetry, the range of a chain's values) is made use of.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

MODULES = (
    *("products", "classifiers", "factorisations", "networks", "solves", "matrix_functions"),
    *("cameras", "filters", "mixtures", "elementwise", "batches"),
)
SINGLE = ("X X vjp", "tr((X X)ᵀ X X) gradient")
"""The rows whose kernels are as good in float32."""


def kernels() -> dict[str, Callable[..., Any]]:
    """Row's name -> function of the row's arguments, which returns what the row's closed form
    does."""
    result: dict[str, Callable[..., Any]] = {}
    for module in MODULES:
        result |= importlib.import_module(f"{__name__}.{module}").KERNELS
    return result
