"""Many modules at once: verified, or compiled ahead of their use, in processes beside this one."""

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
"""Called with what is being done and how many modules are done."""


def verify_files(
    files: Sequence[Path],
    workers: Workers,
    announce: Announce,
    thorough: bool = False,
    home: Path | None = None,
) -> list[Report]:
    """The reports of the generated modules in the files, in their order.

    home: the folder that the files will be moved to: some of their machine code is kept for the
    names by which programs import them from there. One module, or one that is to be verified at a
    time, is verified in this process. Raises LoadError for what is no generated module and
    VerificationError where verification itself breaks off, as by a crash of the process.
    """
    names = {path: import_name(home / path.name) if home else "" for path in files}
    if min(len(files), workers.jobs) < 2:
        return [
            _verified_here(path, names[path], done, announce, thorough)
            for done, path in enumerate(files)
        ]
    order = sorted(files, key=lambda path: (-path.stat().st_size, path))  # the longest work first

    def changed(at_work: list[int], done: int) -> None:
        announce(listing([order[i].stem for i in at_work], "verifying"), done)

    requests = [(os.fspath(path), thorough, names[path]) for path in order]
    answers = workers.map(f"{__name__}:verified_file", requests, changed)
    found = dict(zip(order, answers, strict=True))
    return [reported(path.stem, found[path]) for path in files]


def verified_file(request: tuple[str, bool, str]) -> dict[str, Any]:
    """The report of the module in a file, loaded under a name if it has one, as plain data: what a
    worker does."""
    path, thorough, name = request
    module = load_as(Path(path), name) if name else load(Path(path))
    return verify(module, thorough=thorough).to_dict()


def listing(names: Sequence[str], work: str) -> str:
    """What is being done to which modules, in a line."""
    if not names:
        return work
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}: {work}"


def _verified_here(path: Path, name: str, done: int, announce: Announce, thorough: bool) -> Report:
    announce(f"{path.stem}: verifying", done)
    with loaded_as(path, name) as module:
        return verify(module, thorough=thorough, progress=lambda text: announce(text, done))
