"""A directory beside another one, where its new files are made before they are moved into it.

Locks keep builds apart: on a directory while its files change, and on each staging directory for
as long as its build lives, so that what a killed build left behind can be told and removed.
Where there are no such locks (Windows, some network drives) nothing is locked and nothing swept.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl

PREFIX = ".derivatrix-"
MARKER = "build-in-progress.txt"
_MARKER_TEXT = "A build of derivatrix makes its files here and removes this directory at its end.\n"

_living: set[Path] = set()


def upwards(directory: Path) -> tuple[Path, ...]:
    """The directory and those that it is in."""
    return (directory, *directory.absolute().parents)


@contextlib.contextmanager
def staging(directory: Path) -> Iterator[Path]:
    """A temporary directory on the file system that `directory` is or will be on.

    It is removed at the end, as are those of builds that were killed. Raises OSError where none
    can be made.
    """
    place = next(path for path in upwards(directory) if path.is_dir())
    for near in {place, directory.absolute().parent}:
        _sweep(near)
    made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    _living.add(made)
    handle = _lock(made, wait=False)
    try:
        (made / MARKER).write_text(_MARKER_TEXT, encoding="utf-8")
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        _living.discard(made)
        _release(handle)


def abandon() -> None:
    """Remove every staging directory of this process, which is about to end."""
    for made in [*_living]:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """While this runs no other build changes the files of the directory."""
    handle = _lock(directory, wait=True)
    try:
        yield
    finally:
        _release(handle)


def _sweep(place: Path) -> None:
    """Remove the staging directories of builds that live no more."""
    for path in place.glob(f"{PREFIX}*"):
        if path.is_symlink() or not (path / MARKER).is_file():
            continue
        handle = _lock(path, wait=False)
        if handle is not None:
            shutil.rmtree(path, ignore_errors=True)
            _release(handle)


def _lock(directory: Path, wait: bool) -> int | None:
    """A lock that ends with the process or with `_release`; None where it cannot be had."""
    if sys.platform == "win32":
        return None
    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(handle)
        return None
    return handle


def _release(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)
