"""Pickles are for processes with the same version of derivatrix."""

from __future__ import annotations

from derivatrix.runtime.errors import LoadError
from derivatrix.version import VERSION


def require_version(name: str, version: str) -> None:
    """Raise LoadError for what a process with another version has pickled."""
    if version != VERSION:
        raise LoadError(
            f"{name} comes from a process with derivatrix {version}, and this one has {VERSION}; "
            "install the same version everywhere"
        )
