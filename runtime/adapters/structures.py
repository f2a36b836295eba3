"""Structures of inputs: projection on them, and the check that arrays have them.

A function with a structured input, and its derivatives, are defined on matrices of that structure.
Other packages move all entries of a matrix. So adapters compose the function with `project`, which
makes it and its derivatives those of a function of the full array.
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
"""The structures that are linear spaces, on which `project` projects."""
MAX_DISTANCE = 1e-6
"""Largest distance from a structure, relative to the largest entry: rounding of float32."""


def project(
    structure: str, array: Any, lower: Callable[[Any], Any], upper: Callable[[Any], Any]
) -> Any:
    """Project the last two axes on a linear structure; other arrays are returned as they are.
    lower, upper: `tril` and `triu` of the array's package."""
    if structure in ("symmetric", "spd"):
        return array / 2 + array.mT / 2  # a sum of integers or truth values would overflow
    if structure == "lower":
        return lower(array)
    if structure == "upper":
        return upper(array)
    return lower(upper(array)) if structure == "diagonal" else array


def require_structures(module: ModuleType, /, *inputs: Any, **named: Any) -> None:
    """Raise DeclarationError for the first input without its declared structure. The module's
    functions do not check structures: their results are right for inputs that have them.

    Raises UnsupportedError for missing or superfluous inputs, ShapeError for wrong shapes,
    ValueError and TypeError for an input that is no array of real numbers."""
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
    """Return the largest entry of QᵀQ − I for orthogonal matrices, else of the difference from the
    projection on the structure."""
    if structure == "orthogonal":
        difference = array.mT @ array - np.eye(array.shape[-1])
    else:
        difference = array - project(structure, array, np.tril, np.triu)
    return float(np.abs(difference).max(initial=0))
