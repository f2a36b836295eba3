"""Pyright on programs that use generated packages; both checkers on an editable install."""

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

from tests import ROOT
from tests.typed import planted, write

USER = """
import derivatrix as dx

n, m = dx.dims("n m")
X = dx.matrix("X", n + 1, m)
(X.T @ X).nothing  # wrong
"""


def pyright(folder: Path, *paths: Path, python: str = sys.executable, **found: str) -> set[int]:
    """The lines with errors, of all files; found: variables of the environment."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", python]
    process = subprocess.run(
        [*command, *map(str, paths)],
        cwd=folder,
        env=environment | found,
        capture_output=True,
        text=True,
    )
    errors = [
        e for e in json.loads(process.stdout)["generalDiagnostics"] if e["severity"] == "error"
    ]
    return {error["range"]["start"]["line"] + 1 for error in errors}


def test_pyright_finds_the_planted_errors_and_no_others(tmp_path):
    paths = write(tmp_path)
    wrong = paths.pop("wrong")
    right = [*paths.values(), *tmp_path.glob("generated/*.pyi")]
    assert pyright(tmp_path, *right, PYTHONPATH=str(ROOT)) == set()
    assert pyright(tmp_path, wrong, PYTHONPATH=str(ROOT)) == planted(wrong)


def test_checkers_see_an_editable_install(tmp_path):
    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "tests", "docs")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
    build = "from setuptools import build_meta; build_meta.build_editable('wheel')"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True)
    venv.create(tmp_path / "venv", with_pip=False)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (wheel,) = copy.glob("wheel/*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    packages = [path for path in sys.path if path.endswith("site-packages")]
    (site / "packages.pth").write_text("\n".join(packages), "utf-8")
    user = tmp_path / "user.py"
    user.write_text(USER, "utf-8")
    python = str(tmp_path / "venv" / "bin" / "python")
    assert pyright(tmp_path, user, python=python) == planted(user)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, str(user)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.run(mypy, cwd=tmp_path, env=environment, capture_output=True, text=True)
    (line,) = planted(user)
    assert process.stdout.count("error") == 2 and f"user.py:{line}: error" in process.stdout
