"""Generated modules as operators of PyTorch."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from derivatrix.runtime.adapters.packages import require_package

if TYPE_CHECKING:
    from derivatrix.runtime.adapters.torch_operator import Operator


def operator(module: ModuleType, batched: ModuleType | None = None) -> Operator:
    """The value of a generated module as an operator of PyTorch, a function of the module's inputs
    as tensors of float32 or float64; `derivatrix.torch.operator` says what it does.

    Raises MissingPackageError without PyTorch, DeclarationError where `batched` is no batched
    module of the same inputs."""
    require_package("torch", "2.13")
    from derivatrix.runtime.adapters.torch_family import operator_of

    return operator_of(module, batched)
