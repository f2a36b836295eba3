"""Staging directories: a build writes its files there, and then moves them into the output.

Two kinds of locks keep builds apart: on the output while its files change, and on each staging
directory while its build runs. A staging directory without a lock is of a killed build.
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
MAX_UNMARKED_SECONDS = 60.0
"""Age from which a staging directory without a marker is of a killed build: a running build writes
its marker at once."""

_staging_directories: set[Path] = set()
"""The staging directories of this process."""


def upwards(directory: Path) -> tuple[Path, ...]:
    """List the directory and its parents."""
    return (directory, *directory.absolute().parents)


@contextlib.contextmanager
def staging(directory: Path) -> Iterator[Path]:
    """Make a temporary directory on the file system that `directory` is or will be on.

    At the end it is removed, as are those of killed builds. Raises OSError if it cannot be made.
    """
    parent = next(path for path in upwards(directory) if path.is_dir())
    for folder in {parent, directory.absolute().parent}:
        _remove_abandoned(folder)
    temporary = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    _staging_directories.add(temporary)
    try:
        with FileLock(temporary / _LOCK):
            (temporary / MARKER).write_text(_MARKER_TEXT, encoding="utf-8")
            yield temporary
    finally:
        _remove(temporary)
        _staging_directories.discard(temporary)


def abandon() -> None:
    """Remove the staging directories of this process, which is about to end."""
    for directory in [*_staging_directories]:
        _remove(directory)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other builds from changing the files of a directory during a block.

    The lock file stays behind in `__pycache__`; if it cannot be made, nothing is locked."""
    folder = directory / "__pycache__"
    lock = FileLock(folder / _LOCK)
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _remove_abandoned(folder: Path) -> None:
    """Remove the staging directories in a folder whose builds have ended."""
    for path in folder.glob(f"{PREFIX}*"):
        with contextlib.suppress(Timeout, OSError):
            names = {entry.name for entry in path.iterdir()}
            if path.is_symlink() or (MARKER not in names and names - {_LOCK}):
                continue  # no build made it
            if MARKER not in names and time.time() - path.stat().st_mtime < MAX_UNMARKED_SECONDS:
                continue
            with FileLock(path / _LOCK, timeout=0):
                _remove(path)


def _remove(directory: Path) -> None:
    """Remove a staging directory. Its marker and lock are removed last: another build knows the
    directory by them if this one is interrupted."""
    for path in {*directory.glob("*")} - {directory / MARKER, directory / _LOCK}:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
    shutil.rmtree(directory, ignore_errors=True)
