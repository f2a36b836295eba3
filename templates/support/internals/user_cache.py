"""The user's cache directory. What is in it is run, so nobody else may be able to write to it."""

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
    """Somebody else can write to the user's cache directory; the message says who, and where."""


def user_cache():
    """$DERIVATRIX_CACHE, or a place in the user's cache directory, which is made.

    Raises Untrusted where others can write to it, OSError where the user cannot, RuntimeError where
    the user has no home."""
    wanted = os.environ.get("DERIVATRIX_CACHE") or _default_cache()
    directory = Path(wanted).expanduser().resolve()
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
    """Who but the user could have put something into a file or directory; "" if nobody."""
    if sys.platform == "win32":
        return ""
    try:
        found = path.lstat()
    except FileNotFoundError:  # another process has removed it since
        return ""
    if found.st_uid != os.geteuid():
        return f"{path} belongs to another user"
    return _writable(path, found)


def _replaceable(path):
    """Who but the user and the system could put another directory in the place of one in `path`."""
    if sys.platform == "win32":
        return ""
    found = path.stat()
    if found.st_uid not in (os.geteuid(), os.stat(path.anchor).st_uid):
        return f"{path} belongs to another user"
    return "" if found.st_mode & stat.S_ISVTX else _writable(path, found)


def _writable(path, found):
    others = stat.S_IWOTH if _is_own_group(found.st_gid) else stat.S_IWOTH | stat.S_IWGRP
    return f"other users can write to {path}" if found.st_mode & others else ""


def _is_own_group(group):
    """Whether a group is the user's own, as many systems have one for each user."""
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_name == user.pw_name and {*found.gr_mem} <= {user.pw_name}
