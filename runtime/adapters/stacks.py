"""Modules that do for a stack of samples what others do for one."""

from __future__ import annotations

from typing import Any

from derivatrix.runtime.errors import DeclarationError
from derivatrix.runtime.interface import ModuleInterface


def require_same(single: ModuleInterface, batched: ModuleInterface) -> None:
    """Raise DeclarationError unless `batched` is the function of `single` with a batch axis."""

    def described(each: ModuleInterface) -> Any:
        inputs = [(entry.name, entry.shape, entry.structure, entry.wrt) for entry in each.inputs]
        return inputs, each.output, [entry.name for entry in each.wrt], each.target

    if single.batched or not batched.batched or described(single) != described(batched):
        raise DeclarationError(
            f"{single.name}: the module {batched.name} given as batched= is not the same function "
            "with a batch axis: declare both with the same inputs, expression and wrt, that one "
            f"with batch=[...] and {single.name} without"
        )
