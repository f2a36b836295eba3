"""A folder in which packages are built, and what is found in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from unittest.mock import patch

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.function_file import load_functions
from derivatrix.runtime.atomic_output import PREFIX
from tests import ROOT
from tests.packages import package_of

CERTIFICATE = {"certificate.html", "certificate.json", "certificate.md"}
VICTIM = "tests.campaign.builds.victim"
LONGEST = 120
"""Seconds after which a command is taken to hang."""


FUNCTIONS = """
import os
import derivatrix as dx

a = dx.vector("a", dx.dims("n"))
functions = [
    dx.function(name, [a], int(os.environ["VERSION"]) + i + (dx.erf(a) if name == "more" else a))
    for i, name in enumerate(os.environ["NAMES"].split())
]
"""
"""A function file. `more` needs other support files than the others do."""


@dataclass(frozen=True)
class Version:
    """Functions that can be told from those of other versions by a number in them. names: each has
    it plus its place among them."""

    folder: Path
    number: int
    names: tuple[str, ...]

    @property
    def file(self) -> Path:
        """The file that declares them, the same for all versions, with these variables."""
        path = self.folder / "functions.py"
        if not path.exists():
            path.write_text(FUNCTIONS)
        return path

    @property
    def variables(self) -> dict[str, str]:
        return {"VERSION": str(self.number), "NAMES": " ".join(self.names)}

    @cached_property
    def functions(self) -> list[Function]:
        with patch.dict(os.environ, self.variables):
            return load_functions(self.file)

    @cached_property
    def files(self) -> set[str]:
        """The files of the package, but for a certificate."""
        return package_of(*self.functions)

    def differences(self, found: object) -> str:
        """Compare the modules that a judge found with those of this version."""
        if not isinstance(found, dict) or found.keys() != set(self.names):
            return f"modules {found} instead of {self.names}"
        for place, name in enumerate(self.names):
            declaration, formula, value = found[name]
            number = self.number + place
            if str(number) not in declaration or str(number) not in formula:
                return f"{name} is {declaration}, {formula[:300]}, not with {number}"
            if value not in (None, number):
                return f"{name} is {value} instead of {number}"
        return ""


@dataclass(frozen=True)
class Place:
    """folder: a new one, whose path is that which Python's calls are given."""

    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def start(
        self,
        version: Version,
        *options: str,
        accident: str = "none",
        step: int = 0,
        events: str = "",
    ) -> subprocess.Popen[str]:
        """Begin to build a version by the command line, with an accident (see `victim`)."""
        build = ["build", str(version.file), "-o", str(self.out), *options]
        what = [accident, str(step), events, str(self.folder)]
        return started(VICTIM, *what, *build, **version.variables)

    def build(self, version: Version) -> None:
        """Build a version, without verification, and without accidents."""
        dx.build(version.functions, self.out, verify=False)

    def whole(self, versions: list[Version]) -> list[str]:
        """Check that the package is one of the versions, as files and as modules, or refuses to be
        used."""
        fresh = [v for v in versions if not dx.check(v.functions, self.out)]
        code, text, error = ended(started("tests.campaign.builds.judge", str(self.out)))
        if code:
            return [f"the judge failed: {error}"]
        problems: list[str] = []
        for way, verdict in zip(("load", "import"), json.loads(text), strict=True):
            if "broken" in verdict:
                problems.append(f"{way}: {verdict['broken']}")
            elif fresh and "refused" in verdict:
                problems.append(f"{way} refuses a fresh package: {verdict['refused']}")
            elif not fresh and "modules" in verdict:
                problems.append(f"{way} takes half a package: {verdict['modules']}")
            elif fresh and (result := fresh[0].differences(verdict["modules"])):
                problems.append(f"{way}: {result}")
        return problems

    def mended(self, version: Version) -> list[str]:
        """Build once more, a day later, and check that the package is complete and nothing else
        remains."""
        for path in self.folder.rglob(f"{PREFIX}*"):
            os.utime(path, (0, 0))
        self.build(version)
        own = {f"out/{name}" for name in version.files}
        left = {*files(self.folder)} - own - {f"out/{name}" for name in CERTIFICATE}
        strange = sorted(name for name in left if not name.startswith(("functions.py", "cache/")))
        problems = [f"files are left behind: {strange}"] if strange else []
        return [*problems, *self.whole([version])]


def files(folder: Path) -> list[str]:
    """The names of all files and empty folders below a folder, without Python's caches."""
    result = (
        path
        for path in folder.rglob("*")
        if not path.is_dir() or (not any(path.iterdir()) and path.name != "__pycache__")
    )
    return [
        path.relative_to(folder).as_posix() for path in result if "__pycache__" not in path.parts
    ]


ORDINARY = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override")
"""Starts a program that may not, although it is root's, write what is read-only."""


def started(module: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """A module of this folder that runs as a program, as an ordinary user's."""
    ordinary = ORDINARY if os.geteuid() == 0 else ()
    return subprocess.Popen(
        [*ordinary, sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "NO_COLOR": "1",
            "COLUMNS": "1000",
            **variables,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """The status of a program, what it has printed and its errors."""
    try:
        out, error = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        process.kill()
        out, error = process.communicate()
        return 124, out, f"has not ended after {LONGEST} s: {error}"
    return process.returncode, out, error


def refusal(status: int, text: str, error: str) -> list[str]:
    """Check the end of a command that may fail: the error must be derivatrix's and name a file."""
    if "Traceback" in text + error or status not in (0, 1):
        return [f"status {status}: {text[-1000:]} {error[-3000:]}"]
    if status and not ("derivatrix: " in error and "/" in error):
        return [f"an error that names no file: {error} {text}"]
    return []
