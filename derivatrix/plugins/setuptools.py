"""A step of setuptools' `build`, for projects with a table [tool.derivatrix] in pyproject.toml."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from setuptools import Command, Distribution
from setuptools.command.build import build

from derivatrix.compiler.driver.project import TABLE, Project, find_project
from derivatrix.runtime.errors import DeclarationError

COMMAND = "build_derivatrix"


def finalize(distribution: Distribution) -> None:
    """Add the command to the steps of `build` if the project has the table."""
    if find_project(distribution.src_root or os.curdir) is None:
        return
    distribution.cmdclass[COMMAND] = BuildDerivatrix
    base = distribution.cmdclass.get("build", build)
    steps = [*base.sub_commands, (COMMAND, None)]
    distribution.cmdclass["build"] = type("build", (base,), {"sub_commands": steps})


class BuildDerivatrix(Command):
    """Builds the generated package in the project, and copies it to the files to be installed,
    except for an editable installation."""

    description = "generate the package of derivatives that [tool.derivatrix] declares"
    user_options = [("build-lib=", "d", "directory to copy the generated package to")]  # noqa: RUF012
    editable_mode = False
    build_lib: str | None

    def initialize_options(self) -> None:
        self.build_lib = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        result = self._project.build()
        self.announce(f"derivatrix: {result.directory}: {', '.join(result.modules)}", level=2)
        if self.editable_mode:
            return
        shutil.rmtree(self._installed, ignore_errors=True)  # files of an earlier build
        for target, source in self.get_output_mapping().items():
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    def get_source_files(self) -> list[str]:
        """List the function files, for the source archive."""
        return self._project.files

    def get_outputs(self) -> list[str]:
        return [*self.get_output_mapping()]

    def get_output_mapping(self) -> dict[str, str]:
        """Map the files to be installed to those in the project."""
        directory, installed = self._project.directory, self._installed
        files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
        return {
            str(installed / path.relative_to(directory)): str(path)
            for path in files
            if "__pycache__" not in path.parts
        }

    @property
    def _project(self) -> Project:
        project = find_project(self.distribution.src_root or os.curdir)
        assert project is not None
        return project

    @property
    def _installed(self) -> Path:
        """The folder of the generated package among the files to be installed, by `package_dir`.
        Raises DeclarationError for a package that is not inside of the project."""
        assert self.build_lib is not None
        output = Path(os.path.normpath(self._project.output))
        if output.is_absolute() or output.parts[:1] in ((), ("..",)):  # `run` removes this folder
            raise DeclarationError(
                f"{TABLE} in pyproject.toml has output = {self._project.output!r}; setuptools "
                "expected a folder inside of the project"
            )
        folders = {"": ".", **(self.distribution.package_dir or {})}
        for name, folder in sorted(folders.items(), key=lambda item: -len(Path(item[1]).parts)):
            if output.is_relative_to(os.path.normpath(folder)):
                relative = output.relative_to(os.path.normpath(folder))
                return Path(self.build_lib, *filter(None, name.split(".")), relative)
        return Path(self.build_lib, output)
