"""The cache directory of `derivatrix.compile`. Modules in it are run: no other user may be able to
write there."""

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
    """Make the directory group/name in the cache directory, or in a temporary one if another user
    can write to it or to group/shared. Raises OSError if neither can be made."""
    for root in (cache_directory(), _temporary_cache()):
        common, directory = root / group / shared, root / group / name
        for path in (root / group, common, directory):
            path.mkdir(mode=0o700, exist_ok=True)
        paths = (root / group, *_contents(common), *_contents(directory))
        problem = next(filter(None, map(untrusted, paths)), "")
        if not problem:
            break
        _warn(problem)
    return directory


def write_if_different(directory: Path, texts: Mapping[str, str]) -> None:
    """Write the files of a directory whose contents are missing or not those of `texts`; files and
    folders are the user's alone, whatever the umask."""
    contents = {directory / name: text.encode() for name, text in texts.items()}
    stale = [p for p, data in contents.items() if not p.is_file() or p.read_bytes() != data]
    if not stale:
        return
    with staging(directory) as temporary:
        for path in stale:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.suffix == ".py":
                (path.parent / "__pycache__").mkdir(mode=0o700, exist_ok=True)
            (temporary / "file").write_bytes(contents[path])
            (temporary / "file").chmod(0o600)
            os.replace(temporary / "file", path)


def cache_directory() -> Path:
    """Return $DERIVATRIX_CACHE, or a folder in the user's cache directory; if that is not writable,
    or others can write to it, a temporary directory for the life of the process."""
    try:
        return user_cache()
    except Untrusted as error:
        _warn(str(error))
    except (OSError, RuntimeError):
        pass
    return _temporary_cache()


@cache
def _temporary_cache() -> Path:
    directory = tempfile.TemporaryDirectory(prefix="derivatrix-", ignore_cleanup_errors=True)
    atexit.register(directory.cleanup)
    return Path(directory.name).resolve()


def _contents(directory: Path) -> Iterator[Path]:
    """Yield the directory and all files and folders in it, at any depth."""
    yield directory
    for folder, folders, files in os.walk(directory):
        yield from (Path(folder, name) for name in (*folders, *files))


def _warn(problem: str) -> None:
    warnings.warn(
        f"{problem}, and derivatrix runs what is in its cache; it uses a temporary directory "
        "instead. Remove it, or let DERIVATRIX_CACHE name a directory of your own",
        RuntimeWarning,
        stacklevel=4,
    )
