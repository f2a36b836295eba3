"""Verification of several modules at once, in worker processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from derivatrix.runtime.load import import_name, load, load_as, loaded_as
from derivatrix.runtime.report import Report, reported
from derivatrix.runtime.verify import verify
from derivatrix.runtime.workers import Workers

Announce = Callable[[str, int], None]
"""Called with a line about the work in progress and the number of modules finished."""


def verify_files(
    files: Sequence[Path],
    workers: Workers,
    announce: Announce,
    thorough: bool = False,
    home: Path | None = None,
) -> list[Report]:
    """Verify the generated modules in `files`, in worker processes, and return their reports in
    order; a single module, and all modules if there is one worker, in this process.

    home: the folder that the files will be moved to: some of their machine code is kept under the
    names by which programs import them from there. Raises LoadError for a file that is no generated
    module, VerificationError if verification itself breaks off, as when a process crashes.
    """
    names = {path: import_name(home / path.name) if home else "" for path in files}
    if min(len(files), workers.jobs) < 2:
        reports: list[Report] = []

        def progress(text: str) -> None:
            announce(text, len(reports))

        for path in files:
            progress(f"{path.stem}: verifying")
            with loaded_as(path, names[path]) as module:
                reports.append(verify(module, thorough=thorough, progress=progress))
        return reports
    order = sorted(files, key=lambda path: (-path.stat().st_size, path))  # the longest work first

    def announce_running(running: list[int], finished: int) -> None:
        announce(listing([order[i].stem for i in running], "verifying"), finished)

    requests = [(os.fspath(path), thorough, names[path]) for path in order]
    answers = workers.map(f"{__name__}:verify_file", requests, announce_running)
    answer_of = dict(zip(order, answers, strict=True))
    return [reported(path.stem, answer_of[path]) for path in files]


def verify_file(request: tuple[str, bool, str]) -> dict[str, Any]:
    """Verify the module in a file, loaded under a name if one is given, and return the report as
    plain data: the task of a worker."""
    path, thorough, name = request
    module = load_as(Path(path), name) if name else load(Path(path))
    return verify(module, thorough=thorough).to_dict()


def listing(names: Sequence[str], work: str) -> str:
    """Write a line with at most three of the modules that are worked on, and the work."""
    if not names:
        return work
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{rest}: {work}"
