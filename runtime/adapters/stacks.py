"""Pairs of a module and its batched one: the same function with batch axes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from derivatrix.runtime.errors import DeclarationError
from derivatrix.runtime.interface import ModuleInterface


def equals_calls_by_sample(batched: ModuleInterface, kind: str, is_stacked: Iterable[bool]) -> bool:
    """Return whether one call of a batched module equals calls for each sample of the arguments
    that are stacks: these must have batch axes there, and a batched `vjp` sums the cotangents
    of inputs that samples share."""
    sums = kind == "vjp" and not all(entry.batched for entry in batched.wrt)
    arguments = zip(batched.arguments(kind).values(), is_stacked, strict=True)
    return not sums and all(entry.batched or not stacked for entry, stacked in arguments)


def require_same(single: ModuleInterface, batched: ModuleInterface) -> None:
    """Raise DeclarationError unless `batched` is the function of `single` with batch axes."""

    def signature(module: ModuleInterface) -> Any:
        inputs = [(entry.name, entry.shape, entry.structure, entry.wrt) for entry in module.inputs]
        outputs = [(output.output_name, output.output) for output in module.outputs]
        return inputs, outputs, [entry.name for entry in module.wrt], module.target

    if single.batched or not batched.batched or signature(single) != signature(batched):
        raise DeclarationError(
            f"{single.name}: the module {batched.name} given as batched= is not the same function "
            "with a batch axis: declare both with the same inputs, expression and wrt, that one "
            f"with batch=[...] and {single.name} without"
        )
