"""What generated modules stand on: the package `_support` in the folder of their file, or in the
folder above, where `derivatrix.compile` has one for many."""

from __future__ import annotations

import ast
import hashlib
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from derivatrix.runtime.errors import LoadError

FOLDER = "_support"
SHORT = 7
"""How many characters of a digest names have, which are in those of the files of Numba's cache."""
HOME = "derivatrix.compiled"
"""The package that modules loaded from files are in, whatever folder they are in."""
AGAIN = "build the package again with `derivatrix build`"


def package_for(path: Path, digest: str) -> str:
    """The name of a package that has the support of the module in a file, as it is on disk now;
    `digest` is of the support that the module was built with.

    Raises LoadError where there is no such folder, it is of another version, or a file in it is
    missing or not as derivatrix wrote it."""
    folders = (path.parent, path.parent.parent)
    root = next((each for each in folders if (each / FOLDER / "__init__.py").is_file()), None)
    if root is None:
        raise LoadError(
            f"{path}: the folder {FOLDER}, which belongs beside it, is missing; {AGAIN}"
        )
    folder = root / FOLDER
    state = hashlib.blake2b(f"{root}\0".encode(), digest_size=8)
    source = _read(folder / "__init__.py")
    state.update(source)
    facts = assigned(source)
    if facts.get("DIGEST") != digest:
        version = facts.get("VERSION")
        raise LoadError(
            f"{path}: was built with other support files than those in {folder}"
            + (f", which are of derivatrix {version}" if version else "")
            + f"; {AGAIN}"
        )
    for name, expected in dict(facts.get("FILES") or {}).items():
        contents = _read(folder / name)
        if file_digest(contents) != expected:
            raise LoadError(f"{folder / name}: is not as derivatrix wrote it; {AGAIN}")
        state.update(contents)
    if is_cached(path, digest):
        version = str(facts.get("VERSION")).replace(".", "_")
        return _package(f"{HOME}.v{version}_{digest[:SHORT]}_{state.hexdigest()[:SHORT]}", root)
    return _package(f"{HOME}.files_{state.hexdigest()}", root)


def is_cached(path: Path, digest: str) -> bool:
    """Whether a file is where `derivatrix.compile` keeps its modules, above it those with the same
    support."""
    return path.parent.parent.name == digest


def version_in(package: str) -> tuple[str, str]:
    """The version and the beginning of the digest in the name of a package of the cache; of another
    the digest is ""."""
    version, _, rest = package.rpartition("_")[0].rpartition("_")
    return version.removeprefix("v").replace("_", "."), rest if version else ""


def with_support(module: ModuleType) -> list[ModuleType]:
    """A generated module and the modules of its support that are loaded."""
    prefix = f"{module.__package__}.{FOLDER}."
    found = [each for name, each in [*sys.modules.items()] if name.startswith(prefix)]
    return [module, *found]


def file_digest(contents: bytes) -> str:
    """The digest of a support file that its package lists."""
    return hashlib.blake2b(contents, digest_size=16).hexdigest()


def assigned(source: bytes) -> dict[str, Any]:
    """The names that a text assigns at its top level, with the values of those that are literals
    and None for others; none where the text is damaged."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return {}
    found: dict[str, Any] = {}
    for statement in body:
        match statement:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                targets = [target]
            case _:
                continue
        for each in targets:
            if isinstance(each, ast.Name):
                found[each.id] = None
                with suppress(ValueError):
                    found[each.id] = ast.literal_eval(value)
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LoadError(f"{path}: cannot be read: {error.strerror}; {AGAIN}") from error


def _package(name: str, root: Path) -> str:
    """A package of this name whose parts are in `root`: none of the files there is run for it."""
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [str(root)]
        sys.modules[name] = package
    return name
