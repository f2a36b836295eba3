"""The user's cache directory. Its files are executed, so no other user may write to it."""

# mypy: allow-untyped-defs

import os
import stat
import sys
import tempfile
from pathlib import Path

if sys.platform != "win32":
    import grp
    import pwd


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
