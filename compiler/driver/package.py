"""The files of a package: the modules of a build, and the kept ones of other function files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from derivatrix.compiler.driver.ownership import (
    MARK,
    PACKAGE,
    TYPED,
    own_files,
    published,
    recorded_sources,
)
from derivatrix.compiler.driver.pipeline import Generated
from derivatrix.compiler.driver.support_package import support_texts
from derivatrix.compiler.driver.worker_serialization import Work
from derivatrix.compiler.emit.imports import support_digest
from derivatrix.compiler.frontends.function import Function
from derivatrix.runtime.errors import BuildError
from derivatrix.runtime.support import assigned

_TYPED_TEXT = "Written by derivatrix: the modules of this package have types.\n"
_TEXT = '''{mark}: {summary}. Do not edit; build again instead.

{lines}
"""

import importlib
from typing import TYPE_CHECKING

__all__ = [{names}]
{sources}
if TYPE_CHECKING:
{imports}
else:

    def __getattr__(name):
        if name in __all__:
            return importlib.import_module("." + name, __name__)
        raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")

    def __dir__():
        return sorted(__all__)
'''


@dataclass(frozen=True)
class Package:
    """The modules of a package: those of a build, and `kept` ones of other function files.

    function_files: those of the build, "" for functions of no file. sources: the function file of
    each module that has one."""

    modules: list[Generated]
    kept: list[Generated]
    function_files: Sequence[str]
    sources: Mapping[str, str]

    @property
    def current(self) -> list[Generated]:
        """The modules that can be imported beside this version's support."""
        return [*self.modules, *filter(is_current, self.kept)]

    @cached_property
    def texts(self) -> dict[str, str]:
        """The text of each file of the package, those of the support first, `__init__.py` last."""
        modules = [*self.modules, *self.kept]
        support = support_texts(file for module in modules for file in module.support)
        texts = {name: text for module in modules for name, text in module.texts.items()}
        return {**support, **texts, TYPED: _TYPED_TEXT, PACKAGE: self._init_text()}

    def _init_text(self) -> str:
        names = sorted(module.name for module in (*self.modules, *self.kept))
        summary = f"{len(names)} module{'s' if len(names) != 1 else ''}"
        sources = "".join(
            f'    "{name}": {self.sources[name]!r},\n' for name in sorted(self.sources)
        )
        return _TEXT.format(
            mark=MARK,
            summary=summary,
            lines="\n".join(f"    {name}" for name in names),
            names=", ".join(f'"{name}"' for name in names),
            imports="\n".join(f"    from . import {name} as {name}" for name in names),
            sources=f"_SOURCES = {{\n{sources}}}\n" if sources else "",
        )


def package_of(work: Work, modules: list[Generated], directory: Path) -> Package:
    """Make the package that a build leaves in a directory, given the present files there."""
    function_files = [_source_name(function, directory) for function, _ in work]
    names = [module.name for module in modules]
    kept = kept_modules(directory, names, function_files)
    recorded = recorded_sources(directory)
    sources = {m.name: recorded[m.name] for m in kept if m.name in recorded}
    sources |= {name: source for name, source in zip(names, function_files, strict=True) if source}
    return Package(modules, kept, function_files, sources)


def _source_name(function: Function, directory: Path) -> str:
    """Return the function file as the package records it: relative to the directory if both are in
    one project or one is in the other's folder, so that the record does not depend on where they
    lie; otherwise its name; "" for no file."""
    if not os.path.isabs(function.source):
        return function.source
    file, package = Path(function.source), directory.resolve()
    try:
        common = Path(os.path.commonpath([file, package]))
    except ValueError:  # on different drives
        return file.name
    is_in_project = any((p / "pyproject.toml").exists() for p in (common, *common.parents))
    if is_in_project or common in (file.parent, package.parent):
        return Path(os.path.relpath(file, package)).as_posix()
    return file.name


def kept_modules(directory: Path, names: Iterable[str], sources: Iterable[str]) -> list[Generated]:
    """Read the modules of other function files, which a build of modules called `names` from
    `sources` keeps in a package.

    Raises BuildError if one of another function file, which still exists, has such a name."""
    recorded, built = recorded_sources(directory), {*sources}
    new = {name.casefold() for name in names}
    listed = published(directory)
    for name in listed:
        source = recorded.get(name, "")
        is_replaced = name.casefold() in new and source not in built
        if is_replaced and source and (directory / source).is_file():
            raise BuildError(
                f"{directory}: {name}.py comes from {(directory / source).resolve()}, which "
                "declares a function of this name, too; rename one, build both in one command, or "
                "choose another directory. Nothing was written."
            )
    listed = [name for name in listed if name.casefold() not in new]
    other_names = [name for name in listed if recorded.get(name, "") not in built]
    files = own_files(directory, [f"{name}.py" for name in other_names])
    return [_read_module(directory, name) for name in other_names if f"{name}.py" in files]


def is_current(module: Generated) -> bool:
    """Return whether a module was built with this version's support; others cannot be imported."""
    return assigned(module.text.encode()).get("SUPPORT") == support_digest()


def _read_module(directory: Path, name: str) -> Generated:
    def text_of(file: str) -> str:
        return (directory / file).read_bytes().decode()

    try:
        text, types = text_of(f"{name}.py"), text_of(f"{name}.pyi")
        data = text_of(f"_formulas/{name}.py")
    except (OSError, UnicodeDecodeError) as error:
        raise BuildError(
            f"{directory}: {name}.py, its types or its data, which come from another function "
            f"file, cannot be read ({error}); build that file again, or remove {name}.py"
        ) from error
    facts = assigned(data.encode())
    support = tuple(facts.get("support") or ())
    module = Generated(name, text, str(facts.get("DIGEST", "")), support, data, types)
    return module if is_current(module) else replace(module, support=())
