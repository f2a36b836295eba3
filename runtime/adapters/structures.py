"""The check that arrays have the structures that inputs are declared with."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from derivatrix.runtime.adapters.arguments import in_order
from derivatrix.runtime.adapters.sizes import sizes_of
from derivatrix.runtime.errors import DeclarationError
from derivatrix.runtime.interface import interface_of
from derivatrix.runtime.sampling import PROJECTED, project
from derivatrix.templates.support.common.arguments import _number_array

MAX_DISTANCE = 1e-6
"""Largest distance from a structure, relative to the largest entry: rounding of float32."""


def require_structures(module: ModuleType, /, *inputs: Any, **named: Any) -> None:
    """Raise DeclarationError for the first input without its declared structure. The module's
    functions accept it, and read the nearest array of the structure.

    Raises UnsupportedError for missing or superfluous inputs, ShapeError for wrong shapes,
    ValueError and TypeError for an input that is no array of real numbers."""
    interface = interface_of(module)
    names = [entry.name for entry in interface.inputs]
    pairs = zip(names, in_order(interface.name, names, inputs, named), strict=True)
    arrays = {name: _number_array(interface.name, name, value) for name, value in pairs}
    sizes_of(interface, {name: array.shape for name, array in arrays.items()})
    for entry in interface.inputs:
        if entry.structure in PROJECTED:
            array = arrays[entry.name]
            distance = _distance(entry.structure, array)
            if not distance <= MAX_DISTANCE * np.abs(array).max(initial=0):
                raise DeclarationError(
                    f"{interface.name}: argument {entry.name} is declared {entry.structure}, and "
                    f"the array given for it is not: it differs by {distance:.2g}"
                )


def _distance(structure: str, array: np.ndarray) -> float:
    """Return the largest entry of QᵀQ − I for orthogonal matrices, else of the difference from the
    projection on the structure."""
    if structure == "orthogonal":
        difference = array.mT @ array - np.eye(array.shape[-1])
    else:
        difference = array - project(structure, array)
    return float(np.abs(difference).max(initial=0))
