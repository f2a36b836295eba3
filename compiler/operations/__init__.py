"""The registry of operations, one file an operation or a family; all files are read."""

import importlib
import pkgutil

from derivatrix.compiler.ir.operation import OPERATIONS, Operation, Point, register

__all__ = ["OPERATIONS", "Operation", "Point", "register"]

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
