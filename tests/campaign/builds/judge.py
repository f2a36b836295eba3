"""The state of a package for a new process: `python -m tests.campaign.builds.judge DIR` prints as
JSON the modules that load, with their declarations and a value each, or the error, by
`load_package` and by Python's import."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np

from derivatrix.runtime import load_package
from derivatrix.runtime.errors import DerivatrixError

Loader = Callable[[Path], Mapping[str, ModuleType]]


def judged(load: Loader, directory: Path, values: bool) -> dict[str, object]:
    """Return the declaration and a value of each module, or the error."""
    try:
        return {
            "modules": {name: facts(module, values) for name, module in load(directory).items()}
        }
    except (DerivatrixError, ImportError) as error:
        return {"refused": str(error)}
    except Exception:  # whatever it is, it is not what users are to see: the trial says so
        return {"broken": traceback.format_exc()}


def facts(module: ModuleType, value: bool) -> list[object]:
    """A module's declaration, its formulas, and its value at zeros if it is wanted."""
    result = float(module.value(np.zeros(3))[0]) if value else None
    return [module.DECLARATION, str(module.FORMULAS), result]


def imported(directory: Path) -> dict[str, ModuleType]:
    """The modules of a package as programs import them."""
    sys.path.insert(0, str(directory.parent))
    package = importlib.import_module(directory.name)
    if package.__file__ is None:
        raise ImportError(f"{directory} has no modules")
    return {name: getattr(package, name) for name in package.__all__}


if __name__ == "__main__":
    place = Path(sys.argv[1])
    print(json.dumps([judged(load_package, place, True), judged(imported, place, False)]))
