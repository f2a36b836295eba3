"""An environment of its own, in which derivatrix is installed as users have it."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests import ROOT

PARTS = (
    *("compiler", "runtime", "templates", "derivatrix", "docs", "examples"),
    *("pyproject.toml", "setup.py", "MANIFEST.in", "LICENSE", ".pre-commit-hooks.yaml"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md"),
)


class Environment:
    """A virtual environment that has the packages of this one, too, but for derivatrix."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        packages = self.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        outer = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        (Path(packages) / "outer.pth").write_text(outer)

    def run(
        self, *arguments: str | Path, cwd: Path | None = None, status: int = 0, **more: str
    ) -> str:
        """Return what a run of the environment's Python prints. more: environment variables."""
        return printed([self.python, *arguments], cwd, status, **more)

    def install(self, *what: str | Path) -> str:
        """Install without looking for anything elsewhere."""
        pip = ("-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index")
        return self.run(*pip, "--force-reinstall", *what)


def printed(
    command: list[str | Path], cwd: Path | None = None, status: int = 0, **more: str
) -> str:
    """Return what a command prints; assert that it ends with `status`."""
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "NO_COLOR": "1"}
    environment.pop("PYTHONPATH", None)
    process = subprocess.run(
        command,
        cwd=cwd,
        env={**environment, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    assert process.returncode == status, process.stdout
    return process.stdout


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """A copy of what derivatrix is built from."""
    folder = tmp_path_factory.mktemp("copied") / "checkout"
    for part in PARTS:
        source, copy = ROOT / part, folder / part
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, copy, symlinks=True, ignore=ignored)
        else:
            shutil.copyfile(source, copy)
    return folder


@pytest.fixture(scope="session")
def wheels(environment, checkout, tmp_path_factory):
    """A folder with the wheel of derivatrix, for pip to find beside what indices have."""
    folder = tmp_path_factory.mktemp("wheels")
    environment.run("-m", "build", "--no-isolation", "--wheel", "--outdir", folder, checkout)
    return f"{os.environ.get('PIP_FIND_LINKS', '')} {folder}".strip()


@pytest.fixture(scope="session")
def environment(checkout, tmp_path_factory):
    """One with derivatrix, from a wheel of this checkout."""
    folder = tmp_path_factory.mktemp("environment")
    made = Environment(folder / "venv")
    made.install(checkout)
    assert str(folder) in made.run(
        "-c", "import derivatrix; print(derivatrix.__file__)", cwd=folder
    )
    return made
