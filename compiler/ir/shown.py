"""How messages show what came, whatever it is."""

from __future__ import annotations

import reprlib

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def shown(value: object) -> str:
    """The value as Python writes it, cut to some dozen letters."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # more digits than Python writes
        return f"<{type(value).__name__} of thousands of digits>"
