"""hatch's build hook `derivatrix`, for projects with [tool.derivatrix] in pyproject.toml."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

from derivatrix.compiler.driver.project import TABLE, find_project
from derivatrix.runtime.errors import DeclarationError


class BuildHook(BuildHookInterface):
    """Builds the generated package where the project has it, before a wheel is made of that."""

    PLUGIN_NAME = "derivatrix"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the package, and have its files in the wheel, ignored by git or not."""
        if self.target_name != "wheel":
            return
        project = find_project(self.root)
        if project is None:
            raise DeclarationError(
                f"{self.root}: the build hook of derivatrix needs a table {TABLE} in pyproject.toml"
            )
        project.build()
        output = PurePosixPath(project.output)
        files = ("**/*.py", "*.pyi", "py.typed", "certificate.*")
        build_data["artifacts"] += [f"/{output}/{each}" for each in files]


@hookimpl
def hatch_register_build_hook() -> type[BuildHook]:
    """What hatch calls for the hook."""
    return BuildHook
