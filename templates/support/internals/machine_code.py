"""Keys of machine code by the text of functions, and the folder that all packages share."""

# mypy: allow-untyped-defs

import os
import re
import sys
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

from numba import config

from .user_cache import untrusted, user_cache

_IMPORT = re.compile(rb"\n(?:from (\.*)(\w[\w.]*) |import (\w+))")
_IGNORED_PACKAGES = {*sys.stdlib_module_names, "llvmlite", "numba", "numpy", "scipy"}
"""Packages whose functions are no part of compiled code, or follow from Numba's version."""


def text_digest(function):
    """Return a digest of the file of a function and of all files of its package that this imports,
    directly or indirectly: equal digests mean equal machine code, whatever the package. "" if
    Python did not read the function from this file, or if it may contain code of other packages.
    """
    path, spec = function.__code__.co_filename, function.__globals__.get("__spec__")
    if spec is None or spec.origin != path:
        return ""
    try:
        return _digest(path, _state(path))
    except (OSError, ValueError):
        return ""


def _state(path):
    """Return values that differ between versions of a file within the life of a process."""
    status = os.stat(path)
    return status.st_ino, status.st_mtime_ns, status.st_size


@cache
def _digest(path, state):
    """Compute `text_digest` of a file. Raises ValueError if it imports an unknown package."""
    with open(path, "rb") as file:
        text = file.read()
    digest = blake2b(text, digest_size=8)
    with suppress(OSError):  # the second file of a generated module has functions of the module
        second = os.path.join(os.path.dirname(path), "_formulas", os.path.basename(path))
        digest.update(_digest(second, _state(second)).encode())
    for dots, origin, name in _IMPORT.findall(b"\n" + text):
        origin = (origin or name).decode()
        if dots:
            folder = path.rsplit(os.sep, len(dots))[0]
            imported = f"{os.path.join(folder, *origin.split('.'))}.py"
            with suppress(OSError):  # a package, whose own file has no functions
                digest.update(_digest(imported, _state(imported)).encode())
        elif origin.partition(".")[0] not in _IGNORED_PACKAGES:
            raise ValueError(origin)
    return digest.hexdigest()


@cache
def shared_folder():
    """Return the user's folder of machine code; None if it cannot be made, or if another user can
    write to it."""
    try:
        folder = Path(config.CACHE_DIR or user_cache()) / "machine_code"  # type: ignore[attr-defined]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return None if untrusted(folder) else folder
