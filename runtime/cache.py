"""Where `derivatrix.compile` keeps its modules: what is found there is run, so it has to be the
user's own."""

from __future__ import annotations

import atexit
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from derivatrix.runtime.atomic_output import staging
from derivatrix.templates.support.internals.user_cache import Untrusted, untrusted, user_cache


def module_directory(group: str, shared: str, name: str) -> Path:
    """The directory `name` in that of a group, in the cache directory, of which no other user can
    write to it or to `shared`, which the group has in common. Raises OSError where there is none to
    be had."""
    for place in (cache_directory(), _temporary_cache()):
        common, directory = place / group / shared, place / group / name
        for each in (place / group, common, directory):
            each.mkdir(mode=0o700, exist_ok=True)
        paths = (place / group, *_contents(common), *_contents(directory))
        problem = next(filter(None, map(untrusted, paths)), "")
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
    try:
        return user_cache()
    except Untrusted as error:
        _warn(str(error))
    except (OSError, RuntimeError):
        pass
    return _temporary_cache()


@cache
def _temporary_cache() -> Path:
    holder = tempfile.TemporaryDirectory(prefix="derivatrix-", ignore_cleanup_errors=True)
    atexit.register(holder.cleanup)
    return Path(holder.name).resolve()


def _contents(directory: Path) -> Iterator[Path]:
    """The directory and all that is in it."""
    yield directory
    for place, folders, files in os.walk(directory):
        yield from (Path(place, name) for name in (*folders, *files))


def _warn(problem: str) -> None:
    warnings.warn(
        f"{problem}, and derivatrix runs what is in its cache; it uses a temporary directory "
        "instead. Remove it, or let DERIVATRIX_CACHE name a directory of your own",
        RuntimeWarning,
        stacklevel=4,
    )
