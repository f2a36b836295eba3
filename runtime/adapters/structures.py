"""Structures of inputs: the nearest matrix of one, and the check that arrays have theirs.

A function with a structured input is defined on the matrices of that structure, and so are its
derivatives. Adapters compose it with `project`, since other packages move all entries of a matrix:
then value and derivatives are those of one function of the full array.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from derivatrix.runtime.adapters.arguments import in_order
from derivatrix.runtime.adapters.sizes import sizes_of
from derivatrix.runtime.errors import DeclarationError
from derivatrix.runtime.interface import ModuleInterface
from derivatrix.runtime.sampling import PROJECTED
from derivatrix.templates.support.common.arguments import _number_array

LINEAR = ("symmetric", "spd", "lower", "upper", "diagonal")
"""The structures on which `project` projects."""
MAX_DISTANCE = 1e-6
"""Distance from a structure, relative to the largest entry, that counts as rounding of float32."""


def project(
    structure: str, array: Any, lower: Callable[[Any], Any], upper: Callable[[Any], Any]
) -> Any:
    """The nearest matrices of a linear structure in the last two axes; of others the array as it
    is. lower, upper: `tril` and `triu` of the array's package."""
    if structure in ("symmetric", "spd"):
        return array / 2 + array.mT / 2  # a sum of integers or truth values would overflow
    if structure == "lower":
        return lower(array)
    if structure == "upper":
        return upper(array)
    return lower(upper(array)) if structure == "diagonal" else array


def require_structures(module: ModuleType, /, *inputs: Any, **named: Any) -> None:
    """Raise DeclarationError for the first of a module's inputs that has not the structure that it
    is declared with. The module's functions do not look: they are right for those that have it.

    Raises UnsupportedError for inputs too few or too many, ShapeError for other shapes, ValueError
    and TypeError for what is no array of real numbers."""
    interface = ModuleInterface(module)
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
    """The largest entry of QᵀQ − I for orthogonal matrices, else of the difference from the nearest
    array of the structure."""
    if structure == "orthogonal":
        difference = array.mT @ array - np.eye(array.shape[-1])
    else:
        difference = array - project(structure, array, np.tril, np.triu)
    return float(np.abs(difference).max(initial=0))
