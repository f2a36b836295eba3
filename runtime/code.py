"""Facts read from the bytecode of a module's functions and of the functions that they call."""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator
from itertools import combinations
from types import CodeType, FunctionType
from typing import Any

import numpy as np

CONSTANT_LOADS = ("LOAD_CONST", "LOAD_SMALL_INT", "RETURN_CONST")
"""The opcodes with a constant; Python 3.14 keeps small integers out of `co_consts`."""


def called_functions(roots: Iterable[Any]) -> Iterator[FunctionType]:
    """Yield each of `roots`, the functions in its closure and the compiled functions that its code
    mentions, at any remove, each function once."""
    pending, visited = [*roots], set[int]()
    while pending:
        value = pending.pop()
        function = getattr(value, "py_func", value)
        if isinstance(function, FunctionType) and id(function) not in visited:
            visited.add(id(function))
            yield function
            mentioned = map(function.__globals__.get, function.__code__.co_names)
            pending += [value for value in mentioned if hasattr(value, "py_func")]
            pending += _closure_values(function)


def _closure_values(function: FunctionType) -> Iterator[Any]:
    """Yield the values of a function's closure; a cell that nothing was assigned to has none."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue


def integer_constants(function: FunctionType) -> set[int]:
    """Collect the whole numbers in a function: its literals and the globals that it mentions."""
    code = function.__code__
    literals = (
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname in CONSTANT_LOADS
    )
    values = (*literals, *map(function.__globals__.get, code.co_names))
    return {value for value in values if type(value) is int}


def kinds_to_test_in_float32(functions: dict[str, Any]) -> tuple[str, ...]:
    """Choose kinds whose functions together have all float32 features that any of `functions` has:
    the other kinds show nothing new in float32. Of all such choices, return that with the fewest
    functions to compile."""
    features = {kind: _float32_features(function) for kind, function in functions.items()}
    called = {kind: {*called_functions([function])} for kind, function in functions.items()}

    def union(sets: dict[str, set[Any]], kinds: Iterable[str]) -> set[Any]:
        return set[Any]().union(*map(sets.__getitem__, kinds))

    sufficient = (
        kinds
        for count in range(len(functions) + 1)
        for kinds in combinations(functions, count)
        if union(features, kinds) == union(features, functions)
    )
    return min(sufficient, key=lambda kinds: len(union(called, kinds)))


def _float32_features(root: Any) -> set[object]:
    """Collect the parts of `root` and of the functions that it calls by which float32 could differ
    from float64: constants outside the range of float32, and names of builtins and attributes
    (`np.float32`, `dtype`) in functions of the same module. Names in imported helpers do not count,
    as helpers are the same code in all modules."""
    features = set[object]()
    for function in called_functions([root]):
        if function.__module__ == root.__module__:
            names = function.__code__.co_names
            features.update(name for name in names if name not in function.__globals__)
        features.update(_constants_outside_float32(function.__code__))
    return features


def _constants_outside_float32(code: CodeType) -> Iterator[float]:
    """Yield the constants that are infinite or zero in float32 and neither in float64."""
    for value in code.co_consts:
        if isinstance(value, float) and np.isfinite(value) and value:
            with np.errstate(over="ignore", under="ignore"):
                single = np.float32(value)
            if not np.isfinite(single) or not single:
                yield value
