"""Generated modules from disk: `load` for one, `load_package` for a directory of them.

A file is read before it is run, so that only what derivatrix generated is ever executed.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from derivatrix.runtime.errors import LoadError

REQUIRED = ("INPUTS", "OUTPUT", "FUNCTIONS", "FORMULAS", "DECLARATION", "DIGEST")
"""The names that every generated module defines at its top level."""


def load(source: str | os.PathLike[str]) -> ModuleType:
    """The generated module in a file (a path, or a text that ends in ".py" or has a separator),
    or of an importable name such as "generated.square".

    A file gets a module name of its own, made from its path and its contents: it is the same in
    every process, two versions of a file never mix, and no name that users import is taken.
    Raises LoadError when there is no such module or derivatrix did not generate it.
    """
    if isinstance(source, str) and not source.endswith(".py") and not _has_separator(source):
        return _load_name(source)
    return _load_file(Path(source))


def load_package(directory: str | os.PathLike[str]) -> dict[str, ModuleType]:
    """Every generated module of a directory, by name, in alphabetical order.

    Raises LoadError when there is none."""
    files = generated_files(directory)
    if not files:
        raise LoadError(
            f"{os.fspath(directory)}: no module that derivatrix generated is in this directory; "
            f"write some with `derivatrix build functions.py -o {os.fspath(directory)}`"
        )
    return {path.stem: _load_file(path) for path in files}


def generated_files(directory: str | os.PathLike[str]) -> list[Path]:
    """The files of a directory that derivatrix generated, sorted; hand-written ones are left out.

    Raises LoadError when it is not a directory."""
    root = Path(directory)
    if not root.is_dir():
        raise LoadError(f"{root}: not a directory")
    return [path for path in sorted(root.glob("*.py")) if not _missing(_read(path))]


def require_generated(module: ModuleType) -> None:
    """Raise LoadError unless the module has what every generated module has."""
    absent = [name for name in REQUIRED if not hasattr(module, name)]
    if absent:
        raise LoadError(_refusal(module.__name__, absent))


def _has_separator(text: str) -> bool:
    return os.sep in text or (os.altsep is not None and os.altsep in text)


def _load_name(name: str) -> ModuleType:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise LoadError(f"{name}: cannot be imported: {error}") from error
    require_generated(module)
    return module


def _load_file(path: Path) -> ModuleType:
    if path.is_dir():
        raise LoadError(f"{path}: a directory; load one of its files, or use load_package")
    source = _read(path)
    absent = _missing(source)
    if absent:
        raise LoadError(_refusal(str(path), absent))
    where = path.resolve()
    identity = hashlib.blake2b(str(where).encode() + b"\0" + source, digest_size=6)
    name = f"{path.stem}_{identity.hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    return _execute(name, where)


def _execute(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        del sys.modules[name]
        raise LoadError(f"{path}: needs a package that is not here: {error}") from error
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LoadError(f"{path}: cannot be read: {error.strerror}") from error


def _missing(source: bytes) -> list[str]:
    """The required names that a source text does not assign at its top level."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return list(REQUIRED)
    assigned = {target.id for node in tree.body for target in _targets(node)}
    return [name for name in REQUIRED if name not in assigned]


def _targets(node: ast.stmt) -> list[ast.Name]:
    if isinstance(node, ast.Assign):
        return [target for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target]
    return []


def _refusal(name: str, absent: list[str]) -> str:
    return (
        f"{name}: not a module that derivatrix generated (it defines no {', '.join(absent)}); "
        "generate one with `derivatrix build`"
    )
