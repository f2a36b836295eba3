"""The functions of the matrix of versions need every file of the support."""

from __future__ import annotations

from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.emit.imports import all_files
from derivatrix.compiler.frontends.function_file import load_functions
from tests.versions.__main__ import FUNCTIONS


def test_every_file_of_the_support_is_built() -> None:
    built = {file for function in load_functions(FUNCTIONS) for file in generate(function).support}
    wanted = {file for file in all_files() if not file.startswith("cuda/")}
    # no module needs the first, and those for devices alone the other
    assert wanted - built == {"internals/verification.py", "internals/launches.py"}
