"""The version check of pickles, which only processes with the same derivatrix can exchange."""

from __future__ import annotations

from derivatrix.runtime.errors import LoadError
from derivatrix.version import VERSION


def require_version(name: str, version: str) -> None:
    """Raise LoadError if a process with another version of derivatrix has pickled `name`."""
    if version != VERSION:
        raise LoadError(
            f"{name} comes from a process with derivatrix {version}, and this one has {VERSION}; "
            "install the same version everywhere"
        )
