"""Which machine code belongs to a function of a file, and where it is kept for all packages."""

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
_KNOWN = {*sys.stdlib_module_names, "llvmlite", "numba", "numpy", "scipy"}
"""Packages whose functions are no part of compiled code, or are so by Numba's version."""


def text_digest(function):
    """A digest of the file of a function and of all files of its package that this imports, at any
    remove: with it the function's machine code is the same in every package. "" where Python did
    not read the function from such a file as it is, or code of other packages may be part of it.
    """
    path, spec = function.__code__.co_filename, function.__globals__.get("__spec__")
    if spec is None or spec.origin != path:
        return ""
    try:
        return _digest(path, _state(path))
    except (OSError, ValueError):
        return ""


def _state(path):
    """What differs between versions of a file that follow each other within a process."""
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns, found.st_size


@cache
def _digest(path, state):
    """`text_digest` of a file; ValueError where it imports an unknown package."""
    with open(path, "rb") as file:
        text = file.read()
    digest = blake2b(text, digest_size=8)
    for dots, origin, name in _IMPORT.findall(b"\n" + text):
        origin = (origin or name).decode()
        if dots:
            folder = path.rsplit(os.sep, len(dots))[0]
            other = f"{os.path.join(folder, *origin.split('.'))}.py"
            with suppress(OSError):  # a package, whose own file has no functions
                digest.update(_digest(other, _state(other)).encode())
        elif origin.partition(".")[0] not in _KNOWN:
            raise ValueError(origin)
    return digest.hexdigest()


@cache
def shared_folder():
    """The user's folder of machine code; None where there is none to be had, or somebody else can
    write to it."""
    try:
        folder = Path(config.CACHE_DIR or user_cache()) / "machine_code"  # type: ignore[attr-defined]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return None if untrusted(folder) else folder
