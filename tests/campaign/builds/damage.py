"""Damage to files of packages and of caches, as disks, merges and hands do it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

import derivatrix as dx
from tests.campaign.builds.place import Place, Version, ended, refusal, started

ALONE = ("one",)


@cache
def _verified() -> Path:
    """A package that was verified, in a folder that lasts as long as the process."""
    folder = Path(_held.name)
    dx.build(Version(folder, 20, ALONE).functions, folder / "out")
    return folder / "out"


_held = tempfile.TemporaryDirectory()


def cut(contents: bytes, random: Random) -> bytes:
    return contents[: random.randrange(len(contents) + 1)]


def flipped(contents: bytes, random: Random) -> bytes:
    """Another bit somewhere."""
    changed = bytearray(contents)
    if changed:
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def noise(contents: bytes, random: Random) -> bytes:
    return random.randbytes(random.choice((0, 10, len(contents))))


CHANGES: tuple[Callable[[bytes, Random], bytes], ...] = (cut, flipped, noise)


def damage(paths: list[Path], random: Random) -> str:
    """Change one of the files, remove it, or give it the contents of another; what was done."""
    path = random.choice(sorted(paths))
    what = random.choice((*CHANGES, "removed", "other"))
    if what == "removed":
        path.unlink()
    elif what == "other":
        path.write_bytes(random.choice(sorted(paths)).read_bytes())
    elif callable(what):
        path.write_bytes(what(path.read_bytes(), random))
    return f"{path.name}: {getattr(what, '__name__', what)}"


def support(place: Place, random: Random) -> list[str]:
    """Support files: `load` refuses them, and the next build writes them again, or says that it
    will not overwrite the first of them."""
    version = Version(place.folder, 20, ALONE)
    place.build(version)
    done = damage([*(place.out / "_support").rglob("*.py")], random)
    stale = dx.check(version.functions, place.out)
    status, text, error = ended(started("tests.campaign.builds.judge", str(place.out)))
    problems = [f"the judge failed: {error}"] if status else []
    if not status:
        loaded = json.loads(text)[0]
        if bool(stale) != ("refused" in loaded):
            problems.append(f"differences: {stale}, but load says {str(loaded)[:500]}")
        elif stale and place.out.name not in loaded["refused"]:
            problems.append(f"the error names no file: {loaded['refused']}")
    head = place.out / "_support" / "__init__.py"
    try:
        problems += place.mended(version)
    except dx.BuildError as error:  # another's file, as far as its lines tell
        if f"did not write _support/{head.name}" not in str(error):
            raise
        head.unlink()
        problems += place.mended(version)
    return [f"{done}: {problem}" for problem in problems]


def verified(place: Place, random: Random) -> list[str]:
    """Any file of a verified package: `verify` and `build` refuse it or make it right."""
    version = Version(place.folder, 20, ALONE)
    shutil.copytree(_verified(), place.out, ignore=shutil.ignore_patterns("__pycache__"))
    before = {path: path.read_bytes() for path in place.out.rglob("*") if path.is_file()}
    likely = [path for path in before if path.parent.name != "_support" and "cpu" not in path.parts]
    done = damage(likely, random)
    command = random.choice((["verify", str(place.out)], ["build", str(version.file), "-o"]))
    if command[0] == "build":
        command.append(str(place.out))
    what = ["none", "0", "", str(place.folder)]
    victim = started("tests.campaign.builds.victim", *what, *command, **version.variables)
    status, text, error = ended(victim)
    problems = refusal(status, text, error) if status != 1 or "FAILED" not in text else []
    if command[0] == "build" and status == 0:
        differing = [
            path.name for path in before if not path.exists() or path.read_bytes() != before[path]
        ]
        problems += [f"differs after the build: {differing}"] if differing else []
        told = json.loads((place.out / "certificate.json").read_text())["modules"]
        if [(report["function"], report["passed"]) for report in told] != [("one", True)]:
            problems.append(f"the certificate says {str(told)[:500]}")
    return [f"{done}, {command[0]}: {problem}" for problem in problems]


def caches(place: Place, random: Random) -> list[str]:
    """Files in the cache of `dx.compile`, Numba's among them: what is damaged is made again. Those
    of Python itself are left out: it takes them as they are."""
    version, folder = Version(place.folder, 20, ("one", "two")), place.folder / "cache"
    problems = _compiled(version, folder)
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    done = [damage([path for path in paths if path.exists()], random) for _ in range(3)]
    for _ in range(2):
        problems += _compiled(version, folder)
    left = [path.name for path in folder.rglob(".*")]
    problems += [f"left behind: {left}"] if left else []
    return [f"{done}: {problem}" for problem in problems]


def _compiled(version: Version, folder: Path) -> list[str]:
    """Compile a version in a program with its cache in a folder; return the problem."""
    variables = {**version.variables, "DERIVATRIX_CACHE": str(folder)}
    program = started("tests.campaign.builds.compiled", str(version.file), **variables)
    status, text, error = ended(program)
    if status:
        return [f"status {status}: {error[-3000:]}"]
    result = version.differences(json.loads(text))
    return [result] if result else []
