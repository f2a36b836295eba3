"""Imports of a generated module, and the files of the support that they need."""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from derivatrix.compiler.emit.texts import wrapped
from derivatrix.compiler.ir.operation import Kernel
from derivatrix.runtime.errors import UnsupportedError
from derivatrix.runtime.syntax import parse_python
from derivatrix.templates import support

SUPPORT = support.__name__
MAX_LINE_LENGTH = 100


@dataclass
class Imports:
    """The imports of a generated module, and the users' functions that become part of its text.

    support: name -> the file of the support that defines it, as "cpu.blas"; packages: (package,
    name in the package or "" for the package itself, name in the module); texts: users'
    definitions, each after those that it needs.
    """

    support: dict[str, str] = field(default_factory=dict)
    packages: set[tuple[str, str, str]] = field(default_factory=set)
    texts: dict[str, str] = field(default_factory=dict)
    _origins: dict[str, str] = field(default_factory=dict)

    def add(self, path: str) -> None:
        """Import a function of the support, "target.file.function"."""
        file, _, name = path.rpartition(".")
        self._is_new(name, f"{SUPPORT}.{file}")
        self.support[name] = file

    def add_kernel(self, kernel: Kernel) -> None:
        """Import a helper kernel for the CPU, or add a user's function."""
        if isinstance(kernel, str):
            self.add(f"cpu.{kernel}")
        else:
            self.add_function(kernel)

    def add_function(self, function: Callable) -> None:
        """Add a user's function, or what Numba made of one."""
        plain: Any = getattr(function, "py_func", function)
        name, module = plain.__name__, inspect.getmodule(plain)
        if module is None:
            raise UnsupportedError(f"the source of the kernel {name} cannot be found")
        attribute = getattr(module, name, None)
        if plain is not getattr(attribute, "py_func", attribute):
            raise UnsupportedError(
                f"the kernel {plain.__qualname__} is not what {module.__name__} has by the name "
                f"{name}; a kernel is defined at the top level of its file"
            )
        self._add(module.__name__, name)

    def require(self, package: str, name: str = "", alias: str = "") -> None:
        """Add an import: `import package as alias`, or `from package import name`."""
        self.packages.add((package, name, alias or name or package))

    def _add(self, module: str, name: str) -> None:
        """Add the definition or import of `name` in a user's module, if it has one."""
        contents = _contents(module)
        if name in contents.imports:
            origin, original = contents.imports[name]
            if origin.startswith(f"{SUPPORT}."):
                self.add(f"{origin.removeprefix(f'{SUPPORT}.')}.{original}")
            elif origin.startswith("derivatrix."):
                self._add(origin, original)
            else:
                self.packages.add((origin, original, name))
        elif name in contents.definitions and self._is_new(name, module):
            text, names = contents.definitions[name]
            for dependency in names:
                if dependency != name:
                    self._add(module, dependency)
            self.texts[name] = text

    def _is_new(self, name: str, origin: str) -> bool:
        """Return whether a name is new. Raises UnsupportedError if another definition has it."""
        first_origin = self._origins.setdefault(name, origin)
        if first_origin != origin:
            raise UnsupportedError(
                f"two kernels are called {name}: in {first_origin} and in {origin}"
            )
        return name not in self.texts and name not in self.support

    @property
    def names(self) -> set[str]:
        """The names of imports from the support and of users' definitions."""
        return {*self.support, *self.texts}

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the support that the module needs, sorted, as "cpu/blas.py"."""
        return support_files(self.support.values())

    def package_lines(self) -> list[str]:
        """Write the import statements for packages, those of the standard library first."""
        plain = [(package, alias) for package, name, alias in self.packages if not name]
        lines = [
            f"import {package}" if package == alias else f"import {package} as {alias}"
            for package, alias in sorted(plain)
        ]
        lines += _from_lines(
            (package, name if name == alias else f"{name} as {alias}")
            for package, name, alias in self.packages
            if name
        )
        return sorted(lines, key=lambda line: line.split()[1].split(".")[0] in ("numba", "numpy"))

    def support_lines(self, level: int = 1) -> list[str]:
        """Write the import statements for the support, in a file so many folders below `_support`'s
        own."""
        package = f"{'.' * level}_support"
        return _from_lines((f"{package}.{file}", name) for name, file in self.support.items())


def _from_lines(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Write `from origin import names`, a line for each origin."""
    grouped: dict[str, list[str]] = {}
    for origin, name in sorted(pairs):
        grouped.setdefault(origin, []).append(name)
    lines = []
    for origin, names in grouped.items():
        line = f"from {origin} import {', '.join(names)}"
        if len(line) > MAX_LINE_LENGTH:
            inner = wrapped(", ".join(names), MAX_LINE_LENGTH - 4)
            line = "\n".join([f"from {origin} import (", *(f"    {part}" for part in inner), ")"])
        lines.append(line)
    return lines


def support_files(files: Iterable[str]) -> tuple[str, ...]:
    """List files of the support, given as "cpu.blas", and the files that they import, sorted, as
    "cpu/blas.py"."""
    reached: set[str] = set()
    waiting = {*files}
    while waiting:
        file = waiting.pop()
        reached.add(file)
        origins = {origin for origin, _ in _contents(f"{SUPPORT}.{file}").imports.values()}
        inner = {o.removeprefix(f"{SUPPORT}.") for o in origins if o.startswith(f"{SUPPORT}.")}
        waiting |= inner - reached
    folders = {file.partition(".")[0] for file in reached}
    paths = [f"{file.replace('.', '/')}.py" for file in reached]
    return tuple(sorted([*paths, *(f"{folder}/__init__.py" for folder in folders)]))


@cache
def support_text(file: str) -> str:
    """Read the text of a file of the support, such as "cpu/blas.py"."""
    return (resources.files(SUPPORT) / file).read_text(encoding="utf-8")


@cache
def support_digest() -> str:
    """Return a digest of all files of the support."""
    state = hashlib.blake2b(digest_size=16)
    for file in all_files():
        state.update(f"{file}\0{support_text(file)}".encode())
    return state.hexdigest()


@cache
def all_files() -> tuple[str, ...]:
    """List all files of the support, sorted, as "cpu/blas.py"."""
    folders = [entry for entry in resources.files(SUPPORT).iterdir() if entry.is_dir()]
    files = [(folder, file.name) for folder in folders for file in folder.iterdir()]
    return tuple(sorted(f"{folder.name}/{name}" for folder, name in files if name.endswith(".py")))


def is_defined(path: str) -> bool:
    """Return whether the support has a function, "target.file.function"."""
    file, _, name = path.rpartition(".")
    module = f"{SUPPORT}.{file}"
    return importlib.util.find_spec(module) is not None and name in _contents(module).definitions


def uses(path: str, name: str) -> bool:
    """Return whether a function of the support, "target.file.function", needs `name`, directly or
    through other functions."""
    file, _, function = path.rpartition(".")
    visited: set[tuple[str, str]] = set()
    waiting = [(f"{SUPPORT}.{file}", function)]
    while waiting:
        module, needed = waiting.pop()
        if (module, needed) in visited:
            continue
        visited.add((module, needed))
        if needed == name:
            return True
        contents = _contents(module)
        if needed in contents.imports and contents.imports[needed][0].startswith(SUPPORT):
            waiting.append(contents.imports[needed])
        elif needed in contents.definitions:
            waiting += [(module, dependency) for dependency in contents.definitions[needed][1]]
    return False


@dataclass(frozen=True)
class _Contents:
    """The top level of a module: name -> (text, names read) of definitions, and name -> (module,
    name in it or "") of imports."""

    definitions: dict[str, tuple[str, tuple[str, ...]]]
    imports: dict[str, tuple[str, str]]


def _source(module: str) -> str:
    """Read the text of a module without importing it."""
    if module in sys.modules:
        return inspect.getsource(sys.modules[module])
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def _contents(module: str) -> _Contents:
    return _parsed(_source(module), module.rpartition(".")[0])


@cache
def _parsed(source: str, package: str) -> _Contents:
    lines = source.splitlines()
    definitions: dict[str, tuple[str, tuple[str, ...]]] = {}
    imports: dict[str, tuple[str, str]] = {}
    for statement in parse_python(source).body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                imports[alias.asname or alias.name] = (alias.name, "")
        elif isinstance(statement, ast.ImportFrom):
            origin = importlib.util.resolve_name(
                "." * statement.level + (statement.module or ""), package
            )
            for alias in statement.names:
                imports[alias.asname or alias.name] = (origin, alias.name)
        else:
            for name in _defined_names(statement):
                decorators = getattr(statement, "decorator_list", [])
                start = min(part.lineno for part in (statement, *decorators))
                text = "\n".join(lines[start - 1 : statement.end_lineno])
                definitions[name] = (text, _names_read(statement))
    return _Contents(definitions, imports)


def _defined_names(statement: ast.stmt) -> Iterable[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.AnnAssign):
        return [ast.unparse(statement.target)]
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return []


def _names_read(statement: ast.stmt) -> tuple[str, ...]:
    """List the names in a statement, in order, without builtins."""
    names = [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return tuple(name for name in dict.fromkeys(names) if not hasattr(builtins, name))
