"""What a generated module imports, and which files of the support that takes."""

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

from derivatrix.compiler.ir.operation import Kernel
from derivatrix.runtime.errors import UnsupportedError
from derivatrix.templates import support

SUPPORT = support.__name__


@dataclass
class Imports:
    """The imports of a generated module, and the users' functions that become part of its text.

    support: names -> the files of the support that define them, as "cpu.blas". packages: of other
    imports the package, the name in it ("" for itself) and the name here. texts: of users'
    definitions, each after those it needs.
    """

    support: dict[str, str] = field(default_factory=dict)
    packages: set[tuple[str, str, str]] = field(default_factory=set)
    texts: dict[str, str] = field(default_factory=dict)
    _origins: dict[str, str] = field(default_factory=dict)

    def add(self, path: str) -> None:
        """Import a function of the support, "target.file.function"."""
        file, _, name = path.rpartition(".")
        self._take(name, f"{SUPPORT}.{file}")
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
        found = getattr(module, name, None)
        if plain is not getattr(found, "py_func", found):
            raise UnsupportedError(
                f"the kernel {plain.__qualname__} is not what {module.__name__} has by the name "
                f"{name}; a kernel is defined at the top level of its file"
            )
        self._add(module.__name__, name)

    def require(self, package: str, name: str = "", alias: str = "") -> None:
        """Add an import: `import package as alias`, or `from package import name`."""
        self.packages.add((package, name, alias or name or package))

    def _add(self, module: str, name: str) -> None:
        """Add what `name` is in a user's module, if it is defined there or imported."""
        contents = _contents(module)
        if name in contents.imports:
            origin, original = contents.imports[name]
            if origin.startswith(f"{SUPPORT}."):
                self.add(f"{origin.removeprefix(f'{SUPPORT}.')}.{original}")
            elif origin.startswith("derivatrix."):
                self._add(origin, original)
            else:
                self.packages.add((origin, original, name))
        elif name in contents.definitions and self._take(name, module):
            text, needed = contents.definitions[name]
            for other in needed:
                if other != name:
                    self._add(module, other)
            self.texts[name] = text

    def _take(self, name: str, origin: str) -> bool:
        """Whether a name is new; UnsupportedError where it is another definition's."""
        found = self._origins.setdefault(name, origin)
        if found != origin:
            raise UnsupportedError(f"two kernels are called {name}: in {found} and in {origin}")
        return name not in self.texts and name not in self.support

    @property
    def names(self) -> set[str]:
        """The names that are imported from the support, and those of users' definitions."""
        return {*self.support, *self.texts}

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the support that the module needs, sorted, as "cpu/blas.py"."""
        return support_files(self.support.values())

    def package_lines(self) -> list[str]:
        """The import statements for packages, those of the standard library first."""
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

    def support_lines(self) -> list[str]:
        """The import statements for the support."""
        return _from_lines((f"._support.{file}", name) for name, file in self.support.items())


def _from_lines(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """`from origin import names`, a line for each origin."""
    grouped: dict[str, list[str]] = {}
    for origin, name in sorted(pairs):
        grouped.setdefault(origin, []).append(name)
    return [f"from {origin} import {', '.join(names)}" for origin, names in grouped.items()]


def support_files(files: Iterable[str]) -> tuple[str, ...]:
    """Files of the support, given as "cpu.blas", with those that they import, sorted, as
    "cpu/blas.py"."""
    found: set[str] = set()
    waiting = {*files}
    while waiting:
        file = waiting.pop()
        found.add(file)
        origins = {origin for origin, _ in _contents(f"{SUPPORT}.{file}").imports.values()}
        inner = {o.removeprefix(f"{SUPPORT}.") for o in origins if o.startswith(f"{SUPPORT}.")}
        waiting |= inner - found
    folders = {file.partition(".")[0] for file in found}
    paths = [f"{file.replace('.', '/')}.py" for file in found]
    return tuple(sorted([*paths, *(f"{folder}/__init__.py" for folder in folders)]))


@cache
def support_text(file: str) -> str:
    """The text of a file of the support, such as "cpu/blas.py"."""
    return (resources.files(SUPPORT) / file).read_text(encoding="utf-8")


@cache
def support_digest() -> str:
    """A digest of all files of the support."""
    state = hashlib.blake2b(digest_size=16)
    for file in all_files():
        state.update(f"{file}\0{support_text(file)}".encode())
    return state.hexdigest()


@cache
def all_files() -> tuple[str, ...]:
    """All files of the support, sorted, as "cpu/blas.py"."""
    folders = [each for each in resources.files(SUPPORT).iterdir() if each.is_dir()]
    files = [(folder, file.name) for folder in folders for file in folder.iterdir()]
    return tuple(sorted(f"{folder.name}/{name}" for folder, name in files if name.endswith(".py")))


def is_defined(path: str) -> bool:
    """Whether the support has a function, "target.file.function"."""
    file, _, name = path.rpartition(".")
    module = f"{SUPPORT}.{file}"
    return importlib.util.find_spec(module) is not None and name in _contents(module).definitions


def uses(path: str, name: str) -> bool:
    """Whether a function of the support, "target.file.function", needs what `name` is in the
    support, at any remove."""
    file, _, function = path.rpartition(".")
    seen: set[tuple[str, str]] = set()
    waiting = [(f"{SUPPORT}.{file}", function)]
    while waiting:
        module, wanted = waiting.pop()
        if (module, wanted) in seen:
            continue
        seen.add((module, wanted))
        if wanted == name:
            return True
        contents = _contents(module)
        if wanted in contents.imports and contents.imports[wanted][0].startswith(SUPPORT):
            waiting.append(contents.imports[wanted])
        elif wanted in contents.definitions:
            waiting += [(module, other) for other in contents.definitions[wanted][1]]
    return False


@dataclass(frozen=True)
class _Contents:
    """A module's top level: definitions (text, names used) and imports (module, name or "")."""

    definitions: dict[str, tuple[str, tuple[str, ...]]]
    imports: dict[str, tuple[str, str]]


def _source(module: str) -> str:
    """The text of a module, which is not imported for it."""
    if module in sys.modules:
        return inspect.getsource(sys.modules[module])
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None
    return Path(found.origin).read_text(encoding="utf-8")


def _contents(module: str) -> _Contents:
    return _parsed(_source(module), module.rpartition(".")[0])


@cache
def _parsed(source: str, package: str) -> _Contents:
    lines = source.splitlines()
    definitions: dict[str, tuple[str, tuple[str, ...]]] = {}
    imports: dict[str, tuple[str, str]] = {}
    for statement in ast.parse(source).body:
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
            for name in _defined(statement):
                start = min([statement.lineno, *_decorator_lines(statement)])
                text = "\n".join(lines[start - 1 : statement.end_lineno])
                definitions[name] = (text, _used(statement))
    return _Contents(definitions, imports)


def _defined(statement: ast.stmt) -> Iterable[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.AnnAssign):
        return [ast.unparse(statement.target)]
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return []


def _decorator_lines(statement: ast.stmt) -> list[int]:
    return [decorator.lineno for decorator in getattr(statement, "decorator_list", [])]


def _used(statement: ast.stmt) -> tuple[str, ...]:
    """The names read anywhere in a statement, in order, without builtins."""
    names = [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return tuple(name for name in dict.fromkeys(names) if not hasattr(builtins, name))
