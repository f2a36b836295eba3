"""The source text of kernels with all that they need, for embedding in a generated module."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from derivatrix.compiler.ir.operation import Kernel
from derivatrix.runtime.errors import UnsupportedError
from derivatrix.templates import support

SUPPORT = support.__name__


@dataclass
class Sources:
    """Collects definitions, each after those it needs, and the imports of all of them."""

    texts: dict[str, str] = field(default_factory=dict)
    imports: set[tuple[str, str, str]] = field(default_factory=set)
    _origins: dict[str, str] = field(default_factory=dict)

    def add(self, path: str) -> None:
        """Add a function of the support, "target.file.function"."""
        file, _, name = path.rpartition(".")
        self._add(f"{SUPPORT}.{file}", name)

    def add_kernel(self, kernel: Kernel) -> None:
        """Add a helper kernel for the CPU, or a user's function."""
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

    def _add(self, module: str, name: str) -> None:
        """Add what `name` is in a module, if it is defined there or imported."""
        contents = _contents(_source(module))
        if name in contents.imports:
            origin, original = contents.imports[name]
            if origin.startswith("derivatrix."):
                self._add(origin, original)
            else:
                self.imports.add((origin, original, name))
            return
        if name not in contents.definitions:
            return
        if name in self.texts:
            if self._origins[name] != module:
                raise UnsupportedError(
                    f"two kernels are called {name}: in {self._origins[name]} and in {module}"
                )
            return
        text, needed = contents.definitions[name]
        self._origins[name] = module
        for other in needed:
            if other != name:
                self._add(module, other)
        self.texts[name] = text

    def blocks(self) -> list[str]:
        """The definitions, those of one line together."""
        blocks: list[str] = []
        short = False
        for text in self.texts.values():
            was_short, short = short, "\n" not in text
            if short and was_short:
                blocks[-1] += "\n" + text
            else:
                blocks.append(text)
        return blocks

    def require(self, origin: str, name: str = "", alias: str = "") -> None:
        """Add an import: `import origin as alias`, or `from origin import name`."""
        self.imports.add((origin, name, alias or name or origin))

    def import_lines(self) -> list[str]:
        """The import statements, those of the standard library first."""
        plain = [(origin, alias) for origin, name, alias in self.imports if not name]
        lines = [
            f"import {origin}" if origin == alias else f"import {origin} as {alias}"
            for origin, alias in sorted(plain)
        ]
        grouped: dict[str, list[str]] = {}
        for origin, name, alias in sorted(self.imports):
            if name:
                grouped.setdefault(origin, []).append(
                    name if name == alias else f"{name} as {alias}"
                )
        lines += [f"from {origin} import {', '.join(names)}" for origin, names in grouped.items()]
        return sorted(lines, key=lambda line: line.split()[1].split(".")[0] in ("numba", "numpy"))


def is_defined(path: str) -> bool:
    """Whether the support has a function, "target.file.function"."""
    file, _, name = path.rpartition(".")
    module = f"{SUPPORT}.{file}"
    return (
        importlib.util.find_spec(module) is not None
        and name in _contents(_source(module)).definitions
    )


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


@cache
def _contents(source: str) -> _Contents:
    lines = source.splitlines()
    definitions: dict[str, tuple[str, tuple[str, ...]]] = {}
    imports: dict[str, tuple[str, str]] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                imports[alias.asname or alias.name] = (alias.name, "")
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                imports[alias.asname or alias.name] = (statement.module or "", alias.name)
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
