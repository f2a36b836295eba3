"""The support of generated modules: the package `_support` in the folder of their file, or in the
folder above, where `derivatrix.compile` keeps one for many modules."""

from __future__ import annotations

import ast
import hashlib
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from derivatrix.runtime.errors import LoadError
from derivatrix.runtime.syntax import parse_python

FOLDER = "_support"
DIGEST_PREFIX = 7
"""Characters of a digest in a module's name, which is part of the names of Numba's cache files."""
HOME = "derivatrix.compiled"
"""The package of all modules loaded from files, whatever folder these are in."""
REBUILD_ADVICE = "build the package again with `derivatrix build`"


def package_for(path: Path, digest: str) -> str:
    """Make a package that has the support of the module in a file, and return its name, which
    depends on all contents; `digest` is of the support that the module was built with.

    Raises LoadError if there is no such folder, it is of another version, or a file in it is
    missing or not as derivatrix wrote it."""
    folders = [path.parent, path.parent.parent]
    root = next((root for root in folders if (root / FOLDER / "__init__.py").is_file()), None)
    if root is None:
        raise LoadError(
            f"{path}: the folder {FOLDER}, which belongs beside it, is missing; {REBUILD_ADVICE}"
        )
    folder = root / FOLDER
    state = hashlib.blake2b(f"{root}\0".encode(), digest_size=8)
    source = read_file(folder / "__init__.py", REBUILD_ADVICE)
    state.update(source)
    facts = assigned(source)
    if facts.get("DIGEST") != digest:
        version = facts.get("VERSION")
        raise LoadError(
            f"{path}: was built with other support files than those in {folder}"
            + (f", which are of derivatrix {version}" if version else "")
            + f"; {REBUILD_ADVICE}"
        )
    for name, expected in dict(facts.get("FILES") or {}).items():
        contents = read_file(folder / name, REBUILD_ADVICE)
        if file_digest(contents) != expected:
            raise LoadError(f"{folder / name}: is not as derivatrix wrote it; {REBUILD_ADVICE}")
        state.update(contents)
    name = f"{HOME}.files_{state.hexdigest()}"
    if is_cached(path, digest):
        version = str(facts.get("VERSION")).replace(".", "_")
        name = f"{HOME}.v{version}_{digest[:DIGEST_PREFIX]}_{state.hexdigest()[:DIGEST_PREFIX]}"
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [str(root)]  # its modules are found there; its __init__.py is not run
        sys.modules[name] = package
    return name


def is_cached(path: Path, digest: str) -> bool:
    """Return whether a file is in a cache directory of `derivatrix.compile`, whose folders are
    named by the digest of their modules' support."""
    return path.parent.parent.name == digest


def version_in(package: str) -> tuple[str, str]:
    """Read the version, and the beginning of the digest, from the name of a package of the cache;
    the digest of any other package is ""."""
    version, _, digest = package.rpartition("_")[0].rpartition("_")
    return version.removeprefix("v").replace("_", "."), digest if version else ""


def with_support(module: ModuleType) -> list[ModuleType]:
    """List a generated module and the loaded modules of its support."""
    prefix = f"{module.__package__}.{FOLDER}."
    return [module, *(part for name, part in [*sys.modules.items()] if name.startswith(prefix))]


def file_digest(contents: bytes) -> str:
    """Compute the digest of a support file, as its package lists it."""
    return hashlib.blake2b(contents, digest_size=16).hexdigest()


def assigned(source: bytes) -> dict[str, Any]:
    """Read the names that a text assigns at its top level, with the values of literals and None for
    other expressions; none if the text is no Python."""
    try:
        body = parse_python(source).body
    except (SyntaxError, ValueError):
        return {}
    values: dict[str, Any] = {}
    for statement in body:
        match statement:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                targets = [target]
            case _:
                continue
        for name in targets:
            if isinstance(name, ast.Name):
                values[name.id] = None
                with suppress(ValueError):
                    values[name.id] = ast.literal_eval(value)
    return values


def read_file(path: Path, advice: str = "") -> bytes:
    """Read a file; raises LoadError, with the advice, if that fails."""
    try:
        return path.read_bytes()
    except OSError as error:
        reason = f"{path}: cannot be read: {error.strerror}"
        raise LoadError(f"{reason}; {advice}" if advice else reason) from error
