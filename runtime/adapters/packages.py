"""The programs that adapters are for."""

from __future__ import annotations

import importlib
from importlib import metadata
from types import ModuleType

from derivatrix.runtime.errors import MissingPackageError


def require_package(name: str, least: str) -> ModuleType:
    """The package of this name, imported, of at least the version `least`, as in "0.5".

    The extra of derivatrix that installs it has the package's name. Raises MissingPackageError
    where it is not installed or too old."""
    advice = f"install it with `pip install 'derivatrix[{name}]'`"
    try:
        version = metadata.version(name)
        package = importlib.import_module(name)
    except (ImportError, metadata.PackageNotFoundError) as error:
        raise MissingPackageError(
            f"derivatrix.{name} needs {name} {least} or newer, which cannot be imported ({error}); "
            f"{advice}"
        ) from error
    if _numbers(version) < _numbers(least):
        raise MissingPackageError(
            f"derivatrix.{name} needs {name} {least} or newer; found {version}; {advice}"
        )
    return package


def _numbers(version: str) -> list[int]:
    """The leading numbers of a version: "2.13.0+cpu" is [2, 13, 0]."""
    found: list[int] = []
    for part in version.split("+")[0].split("."):
        if not part.isdigit():
            break
        found.append(int(part))
    return found
