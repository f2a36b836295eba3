"""Generated modules as operators of PyTorch."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from derivatrix.runtime.adapters.packages import require_package

if TYPE_CHECKING:
    from derivatrix.runtime.adapters.torch_operator import Operator


def operator(module: ModuleType, batched: ModuleType | None = None) -> Operator:
    """Make an operator of PyTorch that computes a module's value; see `derivatrix.torch.operator`.

    Raises MissingPackageError without PyTorch, DeclarationError if `batched` is no batched module
    of the same function."""
    require_package("torch", "2.13")
    from derivatrix.runtime.adapters.torch_family import operator_of

    return operator_of(module, batched)
