"""Generated modules as operators of PyTorch: `pip install "derivatrix[torch]"`."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from derivatrix.adapted import module_of
from derivatrix.runtime.adapters import torch as _adapter

if TYPE_CHECKING:
    from derivatrix.compiler.frontends.function import Function
    from derivatrix.runtime.adapters.torch_operator import Operator

__all__ = ["operator"]


def operator(
    module: ModuleType | Function, batched: ModuleType | Function | None = None
) -> Operator:
    """The value of a function as an operator of PyTorch (`torch.library.CustomOpDef`).

    It takes a tensor of float32 or float64 for each input, or a number for one of rank 0, in
    declared order or by name, on the CPU, or on a CUDA device where `module` is for CUDA, and
    returns a tensor, new or that of `out=`. A structured input is replaced by the nearest of its
    structure, as (S + Sᵀ)/2 where S is declared symmetric.

    It has derivatives by the inputs in `wrt`, in reverse and forward mode, and second derivatives
    if it is scalar; other inputs get no gradients. It works under torch.compile, torch.func and
    torch.vmap, which calls it for each sample, or once where `batched` is the same function with
    `batch=` for the inputs that vary. The same arguments give the same operator, and
    it pickles by the name or the file of its module.

    Raises MissingPackageError without PyTorch, DeclarationError where `batched` is no batched
    function of the same inputs, and at a call UnsupportedError for tensors of other types or
    devices and where a derivative does not exist, ShapeError or the module's own ValueError for
    wrong shapes."""
    return _adapter.operator(module_of(module), None if batched is None else module_of(batched))
