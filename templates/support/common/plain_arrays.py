"""Arrays that are their numbers and nothing more."""

# mypy: allow-untyped-defs

import numpy as np

_PLAIN = (np.ndarray, np.matrix, np.memmap)


def _says_more(value):
    """Whether a value has more to it than numbers, which would be lost: a mask, or a unit."""
    if isinstance(value, list | tuple):
        return any(map(_says_more, value))
    if isinstance(value, np.ndarray):
        return type(value) not in _PLAIN
    return any(hasattr(value, name) for name in ("mask", "unit", "units"))
