"""hatch's build hook `derivatrix`, for projects with [tool.derivatrix] in pyproject.toml."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

from derivatrix.compiler.driver.project import TABLE, find_project
from derivatrix.runtime.errors import DeclarationError


class BuildHook(BuildHookInterface):
    """Builds the generated package in the project before hatch makes a wheel."""

    PLUGIN_NAME = "derivatrix"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the package, and add its files to the wheel even if git ignores them."""
        if self.target_name != "wheel":
            return
        project = find_project(self.root)
        if project is None:
            raise DeclarationError(
                f"{self.root}: the build hook of derivatrix needs a table {TABLE} in pyproject.toml"
            )
        project.build()
        output = PurePosixPath(project.output)
        patterns = ("**/*.py", "*.pyi", "py.typed", "certificate.*")
        build_data["artifacts"] += [f"/{output}/{pattern}" for pattern in patterns]


@hookimpl
def hatch_register_build_hook() -> type[BuildHook]:
    """Return the hook to hatch."""
    return BuildHook
