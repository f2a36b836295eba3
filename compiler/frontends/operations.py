"""Public functions of the registered operations."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from functools import cache
from typing import Any

from derivatrix.compiler.ir.arrays import Array, apply, asarray
from derivatrix.compiler.operations import OPERATIONS, Operation
from derivatrix.runtime.errors import DeclarationError


@cache
def calling(operation: Operation) -> Callable[..., Any]:
    """Make the public function of an operation. Several outputs come back as a named tuple."""
    count = len(operation.ranks)
    title = "".join(part.title() for part in operation.name.split("_"))
    bundle: Any = namedtuple(title, operation.outputs)  # type: ignore[misc]

    def call(*arrays: Any) -> Array | tuple[Array, ...]:
        if len(arrays) != count:
            raise DeclarationError(
                f"{operation.name} takes {count} array{'s' * (count > 1)}, not {len(arrays)}"
            )
        operands = operation.prepare([asarray(array) for array in arrays])
        results = [apply(operation, *operands, output=k) for k in range(len(operation.outputs))]
        return bundle(*results) if results else apply(operation, *operands)

    call.__name__ = call.__qualname__ = operation.name
    call.__doc__ = operation.description
    return call


def find(name: str) -> Callable[..., Any] | None:
    """Return the function of the operation called `name`, if there is one."""
    return calling(OPERATIONS[name]) if name in OPERATIONS else None
