"""The kernels of the device, all together."""

import importlib
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import derivatrix.templates.support.cuda as kernels
from derivatrix.runtime.simulated import device_math


def modules() -> Iterator[types.ModuleType]:
    """The files of kernels."""
    for path in sorted(Path(str(kernels.__file__)).parent.glob("*.py")):
        if path.stem != "__init__":
            yield importlib.import_module(f"{kernels.__name__}.{path.stem}")


class Together:
    """The names of several files as attributes of one object."""

    def __init__(self, files: Iterable[types.ModuleType]) -> None:
        self.files = [*files]

    def names(self) -> dict[str, Any]:
        """All that there is, by name."""
        return {name: value for file in self.files for name, value in vars(file).items()}

    def __getattr__(self, name: str) -> Any:
        return self.names()[name]

    def put(self, name: str, value: object, setter: Callable[..., None] = setattr) -> None:
        """Give a name another value in each file that has it."""
        for file in self.files:
            if hasattr(file, name):
                setter(file, name, value)


def together() -> Together:
    """All kernels, with the arithmetic of a device."""
    made = Together(modules())
    made.put("math", device_math())
    return made
