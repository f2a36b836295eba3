"""Where `derivatrix.compile` keeps its modules: what is found there is run, so it has to be the
user's own."""

from __future__ import annotations

import atexit
import os
import stat
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from platformdirs import user_cache_dir

from derivatrix.runtime.atomic_output import staging

if sys.platform != "win32":
    import grp
    import pwd


def module_directory(group: str, shared: str, name: str) -> Path:
    """The directory `name` in that of a group, in the cache directory, of which no other user can
    write to it or to `shared`, which the group has in common. Raises OSError where there is none to
    be had."""
    for place in (cache_directory(), _temporary_cache()):
        common, directory = place / group / shared, place / group / name
        for each in (place / group, common, directory):
            each.mkdir(mode=0o700, exist_ok=True)
        paths = (place / group, *_contents(common), *_contents(directory))
        problem = next(filter(None, map(_problem, paths)), "")
        if not problem:
            break
        _warn(problem)
    return directory


def write_if_different(directory: Path, texts: Mapping[str, str]) -> None:
    """Write those files of a directory of the cache that are not there as they should be."""
    stale = [name for name, text in texts.items() if not _holds(directory / name, text.encode())]
    if not stale:
        return
    with staging(directory) as place:
        for name in stale:
            (directory / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            (place / "file").write_bytes(texts[name].encode())
            os.replace(place / "file", directory / name)


def _holds(path: Path, contents: bytes) -> bool:
    return path.is_file() and path.read_bytes() == contents


def cache_directory() -> Path:
    """$DERIVATRIX_CACHE, or a place in the user's cache directory; where that cannot be written,
    or others can write to it, a temporary directory that lasts as long as the process."""
    wanted = os.environ.get("DERIVATRIX_CACHE")
    try:
        place = wanted or user_cache_dir("derivatrix", appauthor=False, opinion=False)
        directory = Path(place).expanduser().resolve()
        for path in (*reversed(directory.parents), directory):
            if not path.exists():
                path.mkdir(mode=0o700, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return _temporary_cache()
    problem = _problem(directory) or next(filter(None, map(_replaceable, directory.parents)), "")
    if problem:
        _warn(problem)
        return _temporary_cache()
    return directory


@cache
def _temporary_cache() -> Path:
    holder = tempfile.TemporaryDirectory(prefix="derivatrix-", ignore_cleanup_errors=True)
    atexit.register(holder.cleanup)
    return Path(holder.name).resolve()


# Who can write


def _contents(directory: Path) -> Iterator[Path]:
    """The directory and all that is in it."""
    yield directory
    for place, folders, files in os.walk(directory):
        yield from (Path(place, name) for name in (*folders, *files))


def _problem(path: Path) -> str:
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


def _replaceable(path: Path) -> str:
    """Who but the user and the system could put another directory in the place of one in `path`."""
    if sys.platform == "win32":
        return ""
    found = path.stat()
    if found.st_uid not in (os.geteuid(), os.stat(path.anchor).st_uid):
        return f"{path} belongs to another user"
    return "" if found.st_mode & stat.S_ISVTX else _writable(path, found)


def _writable(path: Path, found: os.stat_result) -> str:
    others = stat.S_IWOTH if _is_own_group(found.st_gid) else stat.S_IWOTH | stat.S_IWGRP
    return f"other users can write to {path}" if found.st_mode & others else ""


def _is_own_group(group: int) -> bool:
    """Whether a group is the user's own, as many systems have one for each user."""
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_name == user.pw_name and {*found.gr_mem} <= {user.pw_name}


def _warn(problem: str) -> None:
    warnings.warn(
        f"{problem}, and derivatrix runs what is in its cache; it uses a temporary directory "
        "instead. Remove it, or let DERIVATRIX_CACHE name a directory of your own",
        RuntimeWarning,
        stacklevel=4,
    )
