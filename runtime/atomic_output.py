"""A directory beside another one, where its new files are made before they are moved into it.

Locks keep builds apart: on a directory while its files change, and on each staging directory for
as long as its build lives, so that what a killed build left behind can be told and removed.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

PREFIX = ".derivatrix-"
MARKER = "build-in-progress.txt"
_MARKER_TEXT = "A build of derivatrix makes its files here and removes this directory at its end.\n"
_LOCK = "derivatrix.lock"
_UNMARKED = 60.0
"""Seconds after which a directory without a marker was left by a build that was killed before it
wrote one; else a build is about to."""

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
    try:
        with FileLock(made / _LOCK):
            (made / MARKER).write_text(_MARKER_TEXT, encoding="utf-8")
            yield made
    finally:
        _remove(made)
        _living.discard(made)


def abandon() -> None:
    """Remove every staging directory of this process, which is about to end."""
    for made in [*_living]:
        _remove(made)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """While this runs no other build changes the files of the directory.

    The file of the lock stays, in the folder that Python has for files of no interest; where none
    can be made nothing is locked."""
    folder = directory / "__pycache__"
    lock = FileLock(folder / _LOCK)
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _sweep(place: Path) -> None:
    """Remove the staging directories of builds that live no more."""
    for path in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(Timeout, OSError):
            names = {each.name for each in path.iterdir()}
            if path.is_symlink() or (MARKER not in names and names - {_LOCK}):
                continue  # somebody's own
            if MARKER not in names and time.time() - path.stat().st_mtime < _UNMARKED:
                continue
            with FileLock(path / _LOCK, timeout=0):
                _remove(path)


def _remove(made: Path) -> None:
    """Remove a staging directory, last of all what tells that it is one."""
    for path in {*made.glob("*")} - {made / MARKER, made / _LOCK}:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
    shutil.rmtree(made, ignore_errors=True)
