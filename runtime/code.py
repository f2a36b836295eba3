"""Facts read from the functions of a module and from those that they call, without running any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

import numpy as np

Facts = frozenset[object]
"""Names that the code of functions mentions, and numbers in it that float32 cannot hold."""


def called_functions(roots: Iterable[Any]) -> Iterator[FunctionType]:
    """Some functions, what their closures hold, and all compiled functions that these mention, each
    once as Python has it; kernels of shares of the work, too."""
    waiting, known = [*roots], set[int]()
    while waiting:
        value = waiting.pop()
        waiting += [value.share] if hasattr(value, "share") else []
        function = getattr(value, "py_func", value)
        if isinstance(function, FunctionType) and id(function) not in known:
            known.add(id(function))
            yield function
            cells = (cell.cell_contents for cell in function.__closure__ or ())
            values = map(function.__globals__.get, function.__code__.co_names)
            waiting += [*cells, *(value for value in values if hasattr(value, "py_func"))]


def single_kinds(functions: dict[str, Any]) -> tuple[str, ...]:
    """A few of the functions, by kind, that together mention all that any of them does: what the
    others do in float32 as well, these show."""
    facts = {kind: _facts(function) for kind, function in functions.items()}
    missing = frozenset().union(*facts.values())
    chosen: list[str] = []
    while missing:
        chosen.append(max(facts, key=lambda kind: len(facts[kind] & missing)))
        missing -= facts[chosen[-1]]
    return tuple(kind for kind in functions if kind in chosen)


def _facts(root: Any) -> Facts:
    """Collect the facts of a function. Names that its module defines are followed instead."""
    facts = set[object]()
    for function in called_functions([root]):
        for name in function.__code__.co_names:
            owner = getattr(function.__globals__.get(name), "__module__", "")
            if owner != root.__module__:
                facts.add(name)
        facts.update(_not_single(function.__code__))
    return frozenset(facts)


def _not_single(code: CodeType) -> Iterator[float]:
    """The numbers in code that are infinite or zero in float32 alone."""
    for value in code.co_consts:
        if isinstance(value, float) and np.isfinite(value) and value:
            with np.errstate(over="ignore", under="ignore"):
                single = np.float32(value)
            if not np.isfinite(single) or not single:
                yield value
