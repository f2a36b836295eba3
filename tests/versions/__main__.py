"""Modules built and verified with the lowest and the newest versions of what derivatrix needs, and
run with each others': `python -m tests.versions [PYTHON ...]` (this interpreter, if there is none)
prints a table. The lowest versions are those of pyproject.toml, for the first interpreter.
`--functions FILE` builds those of another file. With `--adapters`, the lowest or the newest JAX,
PyTorch, PyTensor and dask call what each has built. Last, each has the lowest or the newest
numba-cuda, and builds an example for devices, which is verified on one, or in Numba's simulator.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests import ROOT

FUNCTIONS = ROOT / "tests" / "versions" / "functions.py"
CALLED = ROOT / "tests" / "versions" / "called.py"
ADAPTED = ROOT / "tests" / "versions" / "adapted.py"
FOR_DEVICES = ROOT / "examples" / "square.py"
COLUMNS = (
    *("", "Python", "Numba", "NumPy", "SciPy", "SymPy", "builds", "runs those of"),
    *("numba-cuda", "builds for devices"),
)
ADAPTERS = ("jax", "torch", "pytensor", "dask")
"""Extras of pyproject.toml, and the packages that they are named after."""
ADAPTER_COLUMNS = ("", "JAX", "PyTorch", "PyTensor", "dask", "the module's results")
VERSION = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
VERSIONS = """
import importlib.metadata, json, platform
names = ("numba", "numpy", "scipy", "sympy")
print(json.dumps([platform.python_version(), *map(importlib.metadata.version, names)]))
"""


@dataclass(frozen=True)
class Combination:
    """An environment of its own, in `folder`. python: the interpreter it is made with; lowest:
    whether its packages are the lowest that pyproject.toml allows, or the newest there are."""

    python: str
    lowest: bool
    folder: Path

    @property
    def package(self) -> Path:
        """The package that it builds."""
        return self.folder / "generated"

    def install(self) -> None:
        run(self.python, "-m", "venv", self.folder)
        wanted = lowest() if self.lowest else ["--upgrade", "--upgrade-strategy", "eager"]
        self.pip_install(*wanted, ROOT)

    def call(self, *arguments: object) -> str:
        """Return what a command of its interpreter prints."""
        return run(self.folder / "bin" / "python", *arguments)

    def builds(self, functions: Path) -> bool:
        """Return whether it builds the package, which verifies all modules."""
        return self.succeeds("-m", "derivatrix", "build", functions, "-o", self.package)

    def runs(self, other: Combination) -> bool:
        """Return whether a package that another one built returns the same results here."""
        return self.succeeds(CALLED, other.package, other.folder / "results.npz")

    def install_extra(self, wanted: list[str]) -> None:
        """Install more packages. This may change versions of others."""
        pins = map(pinned, wanted) if self.lowest else ["--upgrade", *wanted]
        self.pip_install(*pins)

    def pip_install(self, *wanted: object) -> None:
        """Install packages. Their files are compiled when they are imported, as few are."""
        self.call("-m", "pip", "install", "--quiet", "--no-compile", *wanted)

    def adapted(self) -> list[str]:
        """Return the versions of the packages of `ADAPTERS`, and whether calls of its own package
        through them return the modules' results."""
        extras = project()["optional-dependencies"]
        self.install_extra([text for name in ADAPTERS for text in extras[name]])
        versions = [self.call("-c", VERSION, name).strip() for name in ADAPTERS]
        return [*versions, said(self.succeeds(ADAPTED, self.package))]

    def builds_for_devices(self) -> bool:
        """Build a package for devices, likewise."""
        extra = project()["optional-dependencies"]["cuda"]
        self.install_extra([text for text in extra if not text.startswith("cupy")])
        out = self.folder / "for_devices"
        return self.succeeds("-m", "derivatrix", "build", FOR_DEVICES, "-o", out, "--target=cuda")

    def numba_cuda(self) -> str:
        return self.call("-c", "import numba_cuda; print(numba_cuda.__version__)").strip()

    def succeeds(self, *arguments: object) -> bool:
        try:
            self.call(*arguments)
        except subprocess.CalledProcessError:
            return False
        return True

    def versions(self) -> list[str]:
        result: list[str] = json.loads(self.call("-c", VERSIONS))
        return result


def lowest() -> list[str]:
    """Return the requirements in pyproject.toml, each with its lowest version."""
    return [pinned(text) for text in project()["dependencies"]]


def pinned(text: str) -> str:
    """A requirement of the lowest version alone."""
    return text.replace(">=", "==")


def project() -> dict[str, Any]:
    result: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return result


def said(passed: bool) -> str:
    return "yes" if passed else "no"


def run(*command: object) -> str:
    """Return what a command prints. Raises CalledProcessError if it fails, after printing its
    output."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd=tempfile.gettempdir(), env=kept
    )
    if process.returncode:
        print(process.stdout, process.stderr, sep="\n", file=sys.stderr)
        process.check_returncode()
    return process.stdout


def main() -> int:
    """1 if something fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("python", nargs="*", default=[sys.executable])
    parser.add_argument("--functions", type=Path, default=FUNCTIONS)
    parser.add_argument("--adapters", action="store_true")
    chosen = parser.parse_args()
    pythons, functions = chosen.python, chosen.functions.absolute()
    table, adapters = Table(*COLUMNS), Table(*ADAPTER_COLUMNS)
    passed, rows = True, list[list[str]]()
    with tempfile.TemporaryDirectory() as folder:
        ends = [(pythons[0], True), *((python, False) for python in pythons)]
        made = [
            Combination(python, lowest, Path(folder) / str(number))
            for number, (python, lowest) in enumerate(ends)
        ]
        for combination in made:
            combination.install()
        built = [each.builds(functions) and each.runs(each) for each in made]
        for number, combination in enumerate(made):
            ran = [
                other
                for other, each in enumerate(made)
                if built[other] and (other == number or combination.runs(each))
            ]
            rows.append([*combination.versions(), said(built[number]), " ".join(map(str, ran))])
            passed = passed and len(ran) == len(made)
        for number, combination in enumerate(made if chosen.adapters else ()):
            *versions, agree = combination.adapted()
            adapters.add_row(str(number), *versions, agree)
            passed = passed and agree == said(True)
        for number, combination in enumerate(made):
            for_devices = combination.builds_for_devices()
            passed = passed and for_devices
            table.add_row(str(number), *rows[number], combination.numba_cuda(), said(for_devices))
    console = Console(width=110)
    console.print(table)
    if chosen.adapters:
        console.print(adapters)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
