"""Arrays that are their numbers and nothing more."""

# mypy: allow-untyped-defs

import numpy as np

_PLAIN = (np.ndarray, np.matrix, np.memmap)


def _says_more(value):
    """What to do with a value that has more to it than numbers, a mask or a unit, which would be
    lost; "" where it has not."""
    if type(value) in _PLAIN:
        return ""
    if isinstance(value, list | tuple):
        return next(filter(None, map(_says_more, value)), "")
    if not callable(getattr(value, "mask", callable)):  # pandas has a method of this name
        return "what is masked has no number: fill it, as with np.ma.filled, or leave it out"
    named = any(not callable(getattr(value, name, callable)) for name in ("unit", "units"))
    if named or isinstance(value, np.ndarray):
        return "pass the numbers alone, as of np.asarray"
    return ""
