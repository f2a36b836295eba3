"""Generated modules, and declared functions, as functions of JAX."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from derivatrix.adapted import module_of
from derivatrix.runtime.adapters import jax as _adapter
from derivatrix.runtime.adapters.jax import JaxFunction

if TYPE_CHECKING:
    from derivatrix.compiler.frontends.function import Function

__all__ = ["JaxFunction", "function"]


def function(
    module: ModuleType | Function,
    *,
    batched: ModuleType | Function | None = None,
    native: bool = True,
) -> JaxFunction:
    """See `derivatrix.runtime.adapters.jax.function`; declared functions are compiled."""
    batched_module = None if batched is None else module_of(batched)
    return _adapter.function(module_of(module), batched=batched_module, native=native)
