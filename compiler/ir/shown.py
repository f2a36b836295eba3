"""Values in error messages."""

from __future__ import annotations

import reprlib

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def shown(value: object) -> str:
    """Print the value as Python does, cut to some sixty characters."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # more digits than Python writes
        return f"<{type(value).__name__} of thousands of digits>"
