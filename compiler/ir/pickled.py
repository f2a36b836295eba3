"""Expressions in other processes: pickled with the version of derivatrix that they are of."""

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
    """What `__reduce__` returns for a `kind` of these fields, in which there are these nodes."""
    ordered = topological([*nodes])  # first: none is deep then
    return unpickled, (VERSION, kind, pickle.dumps((ordered, fields)))


def unpickled(version: str, kind: type, contents: bytes) -> Any:
    """The value. Where another version of derivatrix has pickled it, something of its class of
    which everything that is asked raises LoadError: an error while a task is unpickled would end
    dask's worker and reach nobody else."""
    try:
        require_version(kind.__name__, version)
    except LoadError as error:
        return _unavailable(kind, str(error))
    importlib.import_module(
        "derivatrix.compiler.operations"
    )  # which registers them, by their names
    _, fields = pickle.loads(contents)
    return kind(*fields)


def _unavailable(kind: type, reason: str) -> Any:
    def asked(self: Any, name: str) -> Any:
        if name.startswith("__") and name != "__reduce_ex__":
            return object.__getattribute__(self, name)
        raise LoadError(reason)

    names = {"__getattribute__": asked, "__repr__": lambda self: f"<unavailable: {reason}>"}
    made = type(kind.__name__, (kind,), names)
    return object.__new__(made)
