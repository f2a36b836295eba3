"""The kernels of the device in one module, as generated modules embed them."""

import importlib.util
import inspect
import linecache
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path

import derivatrix.templates.support.cuda as kernels
from derivatrix.compiler.emit.sources import Sources
from derivatrix.runtime.simulated import device_math


def modules() -> Iterator[types.ModuleType]:
    """The modules of kernels."""
    for path in sorted(Path(str(kernels.__file__)).parent.glob("*.py")):
        if path.stem != "__init__":
            yield importlib.import_module(f"{kernels.__name__}.{path.stem}")


def embedded(sources: Iterable[types.ModuleType]) -> types.ModuleType:
    """All that modules define, in one module."""
    collected = Sources()
    collected.require("numpy", alias="np")
    for module in sources:
        for name, value in vars(module).items():
            plain = getattr(value, "py_func", value)
            made_here = getattr(plain, "__module__", "") == module.__name__
            if made_here and (inspect.isfunction(plain) or inspect.isclass(plain)):
                collected.add(f"cuda.{module.__name__.rpartition('.')[2]}.{name}")
    text = "\n".join([*collected.import_lines(), *collected.blocks()])
    made = types.ModuleType("embedded_kernels")
    made.__file__ = "<embedded kernels>"
    linecache.cache[made.__file__] = len(text), None, text.splitlines(True), made.__file__
    sys.modules[made.__name__] = made
    exec(compile(text, made.__file__, "exec"), vars(made))
    vars(made)["math"] = device_math()
    return made
