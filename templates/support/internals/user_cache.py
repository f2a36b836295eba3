"""The user's cache directory, and the keys of the machine code that all packages keep there. Its
files are executed, so no other user may write to it."""

# mypy: allow-untyped-defs

import os
import re
import stat
import sys
import tempfile
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

if sys.platform != "win32":
    import grp
    import pwd


_IMPORT = re.compile(rb"\n(?:from (\.*)(\w[\w.]*) |import (\w+))")
_IGNORED_PACKAGES = {*sys.stdlib_module_names, "llvmlite", "numba", "numpy", "scipy"}
"""Packages whose functions are no part of compiled code, or follow from Numba's version."""


class Untrusted(OSError):
    """Another user can write to the cache directory; the message says who, and where."""


def user_cache():
    """Return $DERIVATRIX_CACHE, or a directory in the user's cache directory; make it if necessary.

    Raises Untrusted if another user can write to it, OSError if the user cannot, RuntimeError if
    the user has no home directory."""
    setting = os.environ.get("DERIVATRIX_CACHE") or _default_cache()
    directory = Path(setting).expanduser().resolve()
    for path in (*reversed(directory.parents), directory):
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)
    tempfile.TemporaryFile(dir=directory).close()
    problem = untrusted(directory) or next(filter(None, map(_replaceable, directory.parents)), "")
    if problem:
        raise Untrusted(problem)
    return directory


def _default_cache():
    if sys.platform == "win32":
        return f"{os.environ.get('LOCALAPPDATA') or '~/AppData/Local'}/derivatrix"
    if sys.platform == "darwin":
        return "~/Library/Caches/derivatrix"
    return f"{os.environ.get('XDG_CACHE_HOME', '').strip() or '~/.cache'}/derivatrix"


def untrusted(path):
    """Name another user who can write to a file or directory; "" if there is none."""
    if sys.platform == "win32":
        return ""
    try:
        status = path.lstat()
    except FileNotFoundError:  # another process has removed it since
        return ""
    if status.st_uid != os.geteuid():
        return f"{path} belongs to another user"
    return _writable(path, status)


def _replaceable(path):
    """Name a user, other than this one and root, who can replace a directory in `path`; else ""."""
    if sys.platform == "win32":
        return ""
    status = path.stat()
    if status.st_uid not in (os.geteuid(), os.stat(path.anchor).st_uid):
        return f"{path} belongs to another user"
    return "" if status.st_mode & stat.S_ISVTX else _writable(path, status)


def _writable(path, status):
    write_bits = stat.S_IWOTH if _is_own_group(status.st_gid) else stat.S_IWOTH | stat.S_IWGRP
    return f"other users can write to {path}" if status.st_mode & write_bits else ""


def _is_own_group(group):
    """Return whether a group has only this user; many systems have such a group for each user."""
    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == user.pw_name and {*entry.gr_mem} <= {user.pw_name}


# Machine code


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
    from numba import config  # importing it takes a third of a second, which few users of this need

    try:
        folder = Path(config.CACHE_DIR or user_cache()) / "machine_code"  # type: ignore[attr-defined]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return None if untrusted(folder) else folder
