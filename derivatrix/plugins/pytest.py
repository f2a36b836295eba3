"""`pytest --derivatrix DIR`: the checks of verification as tests, for each module in DIR."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from derivatrix.runtime import Report

CHECKS = (
    *("value", "differences", "slopes", "control", "adjoint", "products", "symmetry", "structure"),
    *("linearity", "empty batch", "batch axes"),
    *("repeat", "out", "kernel", "layout", "float32", "formula", "operator", "todense", "tosparse"),
    *("solve", "module"),
)
"""The checks of a report, each a test; "module" is for all others, about the module as a whole."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("derivatrix").addoption(
        "--derivatrix",
        action="append",
        default=[],
        metavar="DIR",
        help="verify the modules that derivatrix generated in DIR, each check a test",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Add the tests, before pytest selects from all of them."""
    for directory in session.config.getoption("--derivatrix"):
        for path in _files(session.config.invocation_params.dir / directory):
            module = Module.from_parent(session, path=path)
            items += [Check.from_parent(module, name=name) for name in CHECKS]


def _files(directory: Path) -> list[Path]:
    from derivatrix.runtime.errors import LoadError
    from derivatrix.runtime.load import package_files

    try:
        return package_files(directory)
    except LoadError as error:
        raise pytest.UsageError(f"--derivatrix: {error}") from error


class Module(pytest.File):
    """A generated module, verified once for all of its tests."""

    @cached_property
    def report(self) -> Report:
        """The report of the module's verification. Raises LoadError."""
        from derivatrix.runtime import load, verify

        return verify(load(self.path))

    def collect(self) -> list[Any]:
        return [Check.from_parent(self, name=name) for name in CHECKS]


class Check(pytest.Item):
    """One check of a module: passes if all its rows do, and is skipped if there are none."""

    parent: Module

    def runtest(self) -> None:
        """Fail with the worst rows of the check."""
        from derivatrix.runtime.report import describe

        rows = [row for row in self.parent.report.rows if self._has(row.check)]
        failed = [row for row in self.parent.report.failures if row in rows]
        if failed:
            lines = [describe(row) for row in failed[:10]]
            pytest.fail("\n".join([f"{self.path}: {len(failed)} failed", *lines]), pytrace=False)
        if not rows:
            pytest.skip(f"{self.path.stem} has nothing that is checked for {self.name}")

    def _has(self, check: str) -> bool:
        return check == self.name or (self.name == "module" and check not in CHECKS)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the file and the name of the test for pytest's summaries."""
        return self.path, None, f"{self.path.stem}: {self.name}"
