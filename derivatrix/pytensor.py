"""Generated modules, and declared functions, in PyTensor's graphs."""

from derivatrix.adapted import compiling
from derivatrix.runtime.adapters import pytensor as _adapter

__all__ = ["operator"]

operator = compiling(_adapter.operator)
