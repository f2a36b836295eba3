"""Builds that end before their time, meet each other, or find no space or no place."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import derivatrix as dx
from tests.campaign.builds.place import Place, Version, ended, refusal

NAMES = (("one", "two"), ("one", "two", "more"), ("two",), ("one", "more"))
SLOWEST = 4.0
"""Seconds within which builds are killed by the clock."""


def versions(place: Place, random: Random) -> tuple[Version, Version]:
    """Choose a version that is there, or none, and one to build; they may need other support
    files."""
    return tuple(  # type: ignore[return-value]
        Version(place.folder, number, random.choice(NAMES)) for number in (20, 70)
    )


def killed(place: Place, random: Random) -> list[str]:
    """A build that is killed at some change of files, or after some time."""
    old, new = versions(place, random)
    if random.random() < 0.8:
        place.build(old)
    events = random.choice(("moves", "moves", "changes", "clock"))
    if events == "clock":
        build = place.start(new, *random.choice(((), ("--no-verify",))))
        time.sleep(random.uniform(0, SLOWEST))
        build.kill()
    else:
        step = random.randrange(1, 80 if events == "changes" else 2 + 2 * len(new.names))
        build = place.start(new, "--no-verify", accident="kill", step=step, events=events)
    status, text, error = ended(build)
    about = f"killed by {events}"
    problems = place.whole([old, new])
    if status not in (0, -signal.SIGKILL):
        problems += refusal(status, text, error)
    problems += place.mended(random.choice((old, new)))
    return [f"{about}, {old.names} -> {new.names}: {problem}" for problem in problems]


def together(place: Place, random: Random) -> list[str]:
    """Two builds at the same time, each with or without something there before."""
    old, new = versions(place, random)
    if random.random() < 0.5:
        place.build(old)
    first = place.start(old, "--no-verify")
    time.sleep(random.expovariate(1 / 0.2))
    second = place.start(new, "--no-verify")
    problems: list[str] = []
    for build in (first, second):
        status, text, error = ended(build)
        if status:
            problems.append(f"a build failed: {text} {error}")
    problems += place.whole([old, new])
    return [*problems, *place.mended(random.choice((old, new)))]


def full(place: Place, random: Random) -> list[str]:
    """A disk that is full from some change of files on, and files that may not be large."""
    old, new = versions(place, random)
    if random.random() < 0.8:
        place.build(old)
    before = contents(place.out)
    accident = random.choice(("full", "limit"))
    step = random.randrange(1, 90) if accident == "full" else random.randrange(0, 12_000)
    build = place.start(new, "--no-verify", accident=accident, step=step)
    status, text, error = ended(build)
    problems = refusal(status, text, error)
    if status and contents(place.out) != before:
        problems.append("the build failed, and the directory is not as it was")
    problems += place.whole([old, new])
    problems += place.mended(random.choice((old, new)))
    return [f"{accident} {step}: {problem}" for problem in problems]


def read_only(place: Place, random: Random) -> list[str]:
    """A package that may not be written to, and the folder around it, one of them or both."""
    old, new = versions(place, random)
    place.build(old)
    new.file  # noqa: B018 - it is written
    shut = random.choice(([place.out], [place.folder], [place.out, place.folder]))
    before, modes = contents(place.out), {path: path.stat().st_mode for path in shut}
    for path in shut:
        path.chmod(0o500)
    status, text, error = ended(place.start(new, "--no-verify"))
    for path, mode in modes.items():
        path.chmod(mode)
    problems = refusal(status, text, error)
    if not status:
        problems += [f"not the new one: {found}" for found in dx.check(new.functions, place.out)]
    elif contents(place.out) != before:
        problems.append("the build failed, and the directory is not as it was")
    problems += place.whole([old, new])
    problems += place.mended(random.choice((old, new)))
    names = [path.name if path == place.out else "around it" for path in shut]
    return [f"read-only {names}: {problem}" for problem in problems]


IN_THE_WAY = ("out", "out/_support", "out/_support/cpu", "out/_formulas", "out/one.py/x")
"""Paths of directories where there is a file, and of a file where there is a directory."""


def blocked(place: Place, random: Random) -> list[str]:
    """Files in the places of directories, and directories in those of files; a place in which
    nothing can be made."""
    old, new = (Version(place.folder, number, ("one", "more")) for number in (20, 70))
    thing = random.choice(IN_THE_WAY)
    made = place.folder / thing
    if thing != "out" and random.random() < 0.5:
        place.build(old)
        remove(made)
        remove(made.parent) if made.parent.is_file() else None
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text("mine")
    before = contents(place.folder)
    new.file  # noqa: B018 - it is written
    status, text, error = ended(place.start(new, "--no-verify"))
    problems = refusal(status, text, error)
    if not status:
        problems.append("the build has not failed")
    if contents(place.folder) != before | contents(place.folder, ("functions.py",)):
        problems.append(f"the folder is not as it was: {sorted(contents(place.folder))}")
    remove(made)
    remove(made.parent) if thing == "out/one.py/x" else None
    problems += place.mended(new)
    return [f"{thing} in the way: {problem}" for problem in problems]


def contents(folder: Path, names: Sequence[str] = ()) -> dict[str, bytes]:
    """Every file below a folder, or those of these names."""
    result = (path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in result
        if "__pycache__" not in path.parts and (not names or path.name in names)
    }


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, if it is there."""
    if path.is_dir():
        for each in path.iterdir():
            remove(each)
        path.rmdir()
    elif os.path.lexists(path):
        path.unlink()
