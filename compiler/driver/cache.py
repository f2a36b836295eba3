"""Where `derivatrix.compile` keeps its modules."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import cache
from pathlib import Path


def cache_directory() -> Path:
    """$DERIVATRIX_CACHE, or a place in the user's cache directory; where that cannot be written,
    a temporary directory that lasts as long as the process."""
    wanted = os.environ.get("DERIVATRIX_CACHE")
    try:
        directory = Path(wanted).expanduser() if wanted else _user_cache() / "derivatrix"
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return _temporary_cache()
    return directory.resolve()


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@cache
def _temporary_cache() -> Path:
    holder = tempfile.TemporaryDirectory(prefix="derivatrix-", ignore_cleanup_errors=True)
    _holders.append(holder)
    return Path(holder.name).resolve()


_holders: list[tempfile.TemporaryDirectory[str]] = []
