"""Generated modules in PyTensor's graphs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from derivatrix.runtime.adapters.packages import require_package
from derivatrix.runtime.interface import ModuleInterface

LEAST = "2.38"


def operator(module: ModuleType) -> Any:
    """A generated module as a PyTensor `Op`: called with its inputs, as tensor variables of one
    float type, in their order or by name, it returns the variable of its value. A structured input
    is replaced by the nearest of its structure, as (S + Sᵀ)/2 where S is declared symmetric.

    Gradients are the module's: `pytensor.grad` of a function, and once more of a scalar one. In
    graphs that Numba compiles, it is the kernels that are called.

    Raises MissingPackageError where PyTensor is not installed or too old, and LoadError for what is
    no generated module. The Op raises UnsupportedError for variables that are no float tensors, and
    ShapeError for wrong numbers of them or of their axes.
    """
    require_package("pytensor", LEAST)
    from derivatrix.runtime.adapters.pytensor_operator import GeneratedOp

    return GeneratedOp(ModuleInterface(module).module, "value")
