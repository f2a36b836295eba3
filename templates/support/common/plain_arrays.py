"""Arrays that carry more than numbers: a mask, or a unit."""

# mypy: allow-untyped-defs

import numpy as np

_PLAIN = (np.ndarray, np.matrix, np.memmap)


def _advice_if_not_plain(value):
    """Advice for a value whose mask or unit a conversion to numbers would lose; "" for others."""
    if type(value) in _PLAIN:
        return ""
    if isinstance(value, list | tuple):
        return next(filter(None, map(_advice_if_not_plain, value)), "")
    if not callable(getattr(value, "mask", callable)):  # pandas has a method of this name
        return "fill the masked entries, as with np.ma.filled, or leave them out"
    has_unit = any(not callable(getattr(value, name, callable)) for name in ("unit", "units"))
    if has_unit or isinstance(value, np.ndarray):
        return "pass the numbers alone, as of np.asarray"
    return ""
