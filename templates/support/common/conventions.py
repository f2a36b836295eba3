"""What the compiler and generated modules agree on: thresholds, and arrays that are not plain."""

# mypy: allow-untyped-defs

import numpy as np

MAX_HEAP_ENTRIES = 16384
"""Results with at most this many entries in total stay in malloc's heap; malloc may return the
memory of larger ones to the system."""
MAX_SERIAL_BLAS_ENTRIES = 16384
"""Matrices with at most this many entries in total are multiplied by one BLAS thread."""
MAX_SERIAL_STEP_ENTRIES = 65536
"""In a loop over time, BLAS has one thread for steps whose matrices have at most this many entries
in total: threads would wait for each other at each of their products."""
MIN_OPS_PER_THREAD = 500_000
"""Fewest numbers read, written or computed for which a further thread pays."""
MAX_WRITING_THREADS = 4
"""More threads do not write to memory faster."""
LEADING_RATIO = 0.99999
"""Entries of a vector at least this large, relative to its largest, count as largest, too."""
_PLAIN = (np.ndarray, np.matrix, np.memmap)
"""Types of arrays that carry no more than numbers, such as a mask or a unit."""


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
