"""Settings of a generated package: the table [tool.derivatrix] in a project's pyproject.toml."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from derivatrix.runtime.errors import DeclarationError

if TYPE_CHECKING:
    from derivatrix.compiler.driver.build import BuildResult
    from derivatrix.compiler.frontends.function import Function

FILE = "pyproject.toml"
TABLE = "[tool.derivatrix]"
EXAMPLE = '`functions = ["src/model/functions.py"]` and `output = "src/model/generated"`'


@dataclass(frozen=True)
class Project:
    """A table [tool.derivatrix].

    root: the folder of the pyproject.toml. functions: function files, or single functions in them
    as in "functions.py:square". output: the directory of the generated package. Both are as
    written, relative to the root. kinds: the kinds of functions that do not say, () for all.
    second: whether the package has the modules with second derivatives of arrays."""

    root: Path
    functions: tuple[str, ...]
    output: str
    targets: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    second: bool = False

    @property
    def directory(self) -> Path:
        """The directory of the generated package."""
        return self.root / self.output

    @property
    def files(self) -> list[str]:
        """The function files, relative to the root."""
        files = []
        for name in self.functions:
            path, _, function = name.rpartition(":")
            files.append(path if path and function.isidentifier() else name)
        return list(dict.fromkeys(files))

    def load(self) -> list[Function]:
        """Load the declared functions. Raises the errors of `load_functions`."""
        from derivatrix.compiler.frontends.function_file import load_files

        return load_files([self.root / name for name in self.functions])

    def build(self) -> BuildResult:
        """Build and verify the package. Raises the errors of `build`."""
        from derivatrix.compiler.driver.build import build

        return build(
            self.load(),
            self.directory,
            self.targets,
            kinds=self.kinds or None,
            second=self.second,
        )


def find_project(root: str | os.PathLike[str] = ".") -> Project | None:
    """Read the table in a folder's pyproject.toml; None if there is no such file or table. Raises
    DeclarationError if it cannot be read."""
    path = Path(root) / FILE
    if not path.is_file():
        return None
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DeclarationError(f"{path}: cannot be read: {error}") from error
    tools = settings.get("tool")
    table = tools.get("derivatrix") if isinstance(tools, dict) else None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise DeclarationError(f"{path}: tool.derivatrix is no table; write {EXAMPLE} in {TABLE}")
    return _project(path, table)


def _project(path: Path, table: Mapping[str, Any]) -> Project:
    for name in table:
        if name not in ("functions", "output", "targets", "kinds", "second"):
            raise DeclarationError(
                f"{path}: {TABLE} has no setting {name!r}; there are functions, output, targets, "
                "kinds and second"
            )
    output = table.get("output")
    if not isinstance(output, str) or not output.strip():
        raise DeclarationError(
            f"{path}: {TABLE} needs output, the directory of the generated package; "
            f"{_actual(table, 'output')}; write {EXAMPLE}"
        )
    functions = _texts(path, table, "functions", None)
    targets = _texts(path, table, "targets", ["cpu"])
    kinds = _texts(path, table, "kinds", None) if "kinds" in table else ()
    second = table.get("second", False)
    if not isinstance(second, bool):
        raise DeclarationError(f"{path}: {TABLE} has second = {second!r}; expected true or false")
    return Project(path.parent, functions, output, targets, kinds, second)


def _texts(
    path: Path, table: Mapping[str, Any], name: str, default: list[str] | None
) -> tuple[str, ...]:
    values = table.get(name, default)
    if not (isinstance(values, list) and values and all(isinstance(v, str) for v in values)):
        raise DeclarationError(
            f"{path}: {TABLE} needs {name} as a list of texts; {_actual(table, name)}; "
            f"write {EXAMPLE}"
        )
    return tuple(values)


def _actual(table: Mapping[str, Any], name: str) -> str:
    return f"found {table[name]!r}" if name in table else "it has none"
