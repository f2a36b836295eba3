"""Pickles of expressions, which other processes load if they run the same version."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Iterable
from typing import Any

from derivatrix.compiler.ir.nodes import Node, topological
from derivatrix.runtime.errors import LoadError
from derivatrix.runtime.same_version import require_version
from derivatrix.version import VERSION


def pickled(kind: type, fields: Any, nodes: Iterable[Node]) -> tuple[Any, ...]:
    """Return the `__reduce__` value of a `kind` with these fields, which refer to these nodes."""
    ordered = topological([*nodes])  # pickled first, children before parents: no recursion
    return unpickled, (VERSION, kind, pickle.dumps((ordered, fields)))


def unpickled(version: str, kind: type, contents: bytes) -> Any:
    """Rebuild the value. If another version has pickled it, return a stand-in whose every use
    raises LoadError: an error while a task is unpickled would end dask's worker and reach nobody
    else."""
    try:
        require_version(kind.__name__, version)
    except LoadError as error:
        return _unavailable(kind, str(error))
    importlib.import_module("derivatrix.compiler.operations")  # registers them by name
    _, fields = pickle.loads(contents)
    return kind(*fields)


def _unavailable(kind: type, reason: str) -> Any:
    def refuse(self: Any, name: str) -> Any:
        if name.startswith("__") and name != "__reduce_ex__":
            return object.__getattribute__(self, name)
        raise LoadError(reason)

    names = {"__getattribute__": refuse, "__repr__": lambda self: f"<unavailable: {reason}>"}
    return object.__new__(type(kind.__name__, (kind,), names))
