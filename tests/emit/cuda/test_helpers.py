"""The helper kernels for CUDA devices in the simulator: the files of tests/devices, each run in a
process of its own."""

import os
import subprocess
import sys

import pytest

from derivatrix.runtime.simulated import ENVIRONMENT
from tests import ROOT

FILES = ("linear_algebra", "spectra")


@pytest.mark.thorough
@pytest.mark.parametrize("name", FILES)
def test_file(name):
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", f"tests/devices/{name}.py"]
    process = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout + process.stderr


def test_every_file_is_run():
    paths = (ROOT / "tests" / "devices").glob("*.py")
    result = {path.stem for path in paths if "\ndef test_" in path.read_text(encoding="utf-8")}
    assert result == {*FILES}
