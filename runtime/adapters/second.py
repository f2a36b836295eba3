"""The modules with second derivatives of array-valued functions, found for adapters.

The module `f_second` has the JVP of f as its value, a function of the inputs and directions. So its
`vjp` and `jvp` are the derivatives of the `vjp` and `jvp` of f along directions of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from derivatrix.runtime.errors import LoadError, UnsupportedError
from derivatrix.runtime.interface import ModuleInterface, interface_of
from derivatrix.runtime.load import LoadedModule, load


def has_second(interface: ModuleInterface) -> bool:
    """Return whether the module with second derivatives is there, or can be compiled."""
    return _loader(interface) is not None


def second_of(interface: ModuleInterface) -> ModuleInterface:
    """Load the module with second derivatives: what `derivatrix.compile` makes in the process that
    has the declaration, otherwise the module beside this one.

    Raises UnsupportedError if there is none, LoadError if it is of another build, and the errors of
    `derivatrix.compile`."""
    make = _loader(interface)
    if make is None:
        raise UnsupportedError(without_second(interface))
    second = interface_of(make())
    if second.primal != interface.module.DIGEST:
        raise LoadError(
            f"{second.name}: is of another build than {interface.name}; build both again, with "
            "second=True"
        )
    return second


def without_second(interface: ModuleInterface) -> str:
    """Explain why there are no second derivatives, and what gives them."""
    return (
        f"{interface.name}: has no second derivatives: its value is no scalar, and there is no "
        f"module {_name(interface)} beside it; build with second=True, as `derivatrix build "
        "--second` does, or pass the declared function in place of the module"
    )


def _loader(interface: ModuleInterface) -> Callable[[], ModuleType] | None:
    module, name = interface.module, _name(interface)
    make_second: Callable[[], ModuleType] | None = getattr(module, "make_second", None)
    if make_second is not None:
        return make_second
    if isinstance(module, LoadedModule):
        path = Path(str(module.__file__)).with_name(f"{name}.py")
        return partial(load, path) if path.is_file() else None
    package = module.__name__.rpartition(".")[0]
    full_name = f"{package}.{name}"
    return partial(import_module, full_name) if package and find_spec(full_name) else None


def _name(interface: ModuleInterface) -> str:
    """Name the module: f_second, f_second_cuda."""
    function = interface.module.generated.owner
    return f"{function}_second{interface.name.removeprefix(function)}"
