"""Generated modules, and declared functions, as operators of PyTorch."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from derivatrix.adapted import module_of
from derivatrix.runtime.adapters.packages import require_package

if TYPE_CHECKING:
    from derivatrix.compiler.frontends.function import Function
    from derivatrix.runtime.adapters.torch_operator import Operator

__all__ = ["operator"]


def operator(
    module: ModuleType | Function, batched: ModuleType | Function | None = None
) -> Operator:
    """Make an operator of PyTorch (`torch.library.CustomOpDef`) that computes a function's value.

    It takes a tensor of float32 or float64 for each input, or a number for one of rank 0, by
    position or name, on the CPU, or on a CUDA device if `module` is for CUDA, and returns a new
    tensor, or `out=`; of several outputs, a named tuple of tensors. A structured input is replaced
    by its projection on the structure, as (S + Sᵀ)/2 if S is declared symmetric.

    It has first and second derivatives by the inputs in `wrt`, in reverse and forward mode; other
    inputs get no gradients. Second derivatives of arrays are those of the module `f_second`, which
    is compiled, or which `derivatrix build --second` has written. It works with torch.compile,
    torch.func and torch.vmap, which calls it for each sample, or once if it has `batch=` for the
    inputs that vary, or if `batched` is the same function with that. Inputs in `batch` take any
    number of leading axes, such as (batch, heads, n, d), which broadcast. The same arguments give
    the same operator; its pickle holds the name and the file of the module.

    Raises MissingPackageError without PyTorch, DeclarationError if `batched` is no batched module
    of the same function. Calls raise UnsupportedError for tensors of other types or devices and for
    derivatives that do not exist, ShapeError or the module's ValueError for wrong shapes."""
    require_package("torch", "2.13")
    from derivatrix.runtime.adapters.torch_family import operator_of

    return operator_of(module_of(module), None if batched is None else module_of(batched))
