"""Import of the packages that adapters are for."""

from __future__ import annotations

import importlib
from importlib import metadata
from itertools import takewhile
from types import ModuleType

from derivatrix.runtime.errors import MissingPackageError


def require_package(name: str, min_version: str) -> ModuleType:
    """Import a package of a minimum version such as "0.5".

    The extra of derivatrix that installs it has the package's name. Raises MissingPackageError if
    it is not installed or too old."""
    advice = f"install it with `pip install 'derivatrix[{name}]'`"
    try:
        version = metadata.version(name)
        package = importlib.import_module(name)
    except (ImportError, metadata.PackageNotFoundError) as error:
        raise MissingPackageError(
            f"derivatrix.{name} needs {name} {min_version} or newer, which cannot be imported "
            f"({error}); {advice}"
        ) from error
    if _numbers(version) < _numbers(min_version):
        raise MissingPackageError(
            f"derivatrix.{name} needs {name} {min_version} or newer; found {version}; {advice}"
        )
    return package


def _numbers(version: str) -> list[int]:
    """Read the leading numbers of a version: "2.13.0+cpu" is [2, 13, 0]."""
    parts = takewhile(str.isdigit, version.split("+")[0].split("."))
    return [int(part) for part in parts]
