"""Generated modules, and declared functions, as functions of JAX."""

from derivatrix.adapted import compiling
from derivatrix.runtime.adapters import jax as _adapter

__all__ = ["function"]

function = compiling(_adapter.function)
