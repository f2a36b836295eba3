"""Expressions in other processes: pickled with the version of derivatrix that they are of."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Iterable
from typing import Any

from derivatrix.compiler.ir.nodes import Node, topological
from derivatrix.runtime.same_version import require_version
from derivatrix.version import VERSION


def pickled(kind: type, fields: Any, nodes: Iterable[Node]) -> tuple[Any, ...]:
    """What `__reduce__` returns for a `kind` of these fields, in which there are these nodes."""
    ordered = topological([*nodes])  # first: none is deep then
    return unpickled, (VERSION, kind.__name__, pickle.dumps((ordered, kind, fields)))


def unpickled(version: str, kind: str, contents: bytes) -> Any:
    """The value. Raises LoadError where another version of derivatrix has pickled it."""
    require_version(kind, version)
    importlib.import_module(
        "derivatrix.compiler.operations"
    )  # which registers them, by their names
    _, found, fields = pickle.loads(contents)
    return found(*fields)
