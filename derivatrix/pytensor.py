"""Generated modules, and declared functions, in PyTensor's graphs."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from derivatrix.adapted import module_of
from derivatrix.runtime.adapters.packages import require_package
from derivatrix.runtime.interface import interface_of

if TYPE_CHECKING:
    from derivatrix.compiler.frontends.function import Function

__all__ = ["operator"]


def operator(module: ModuleType | Function) -> Any:
    """Make a PyTensor `Op` of a generated module, or of a declared function, which is compiled.

    Called with its inputs, tensor variables of one float type, by position or name, the Op returns
    the variable of its value. A structured input is replaced by its projection on the structure, as
    (S + Sᵀ)/2 if S is declared symmetric. Inputs in `batch` take any number of leading axes; those
    that are known to have length 1 broadcast.

    Gradients are the module's: `pytensor.grad` of a function, and once more of a scalar one, and of
    an array if there is the module `f_second`, which `derivatrix build --second` writes. In graphs
    that Numba compiles, the Op calls the kernel.

    Raises MissingPackageError if PyTensor is not installed or too old, LoadError if the module is
    not a generated one. The Op raises UnsupportedError for variables that are no float tensors,
    ShapeError for a wrong number of variables or axes.
    """
    require_package("pytensor", "2.36")
    import derivatrix.runtime.adapters.pytensor_jax  # registers a rewrite  # noqa: F401
    from derivatrix.runtime.adapters.pytensor_operator import GeneratedOp

    return GeneratedOp(interface_of(module_of(module)).module, "value")
