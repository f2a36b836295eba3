"""NumPy's functions called on symbolic arrays: ufuncs and array functions, by their names."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from derivatrix.compiler.frontends import implicit, operations
from derivatrix.compiler.frontends.arrays import FUNCTIONS
from derivatrix.compiler.frontends.numpy_names import OTHERWISE, RENAMED, at_all_pairs
from derivatrix.compiler.ir.methods import hint
from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import UnsupportedError

REDUCTIONS = {np.add: "sum", np.multiply: "prod"}
"""Ufuncs -> the function that is their `reduce`."""


UFUNC_DEFAULTS = {
    "out": None,
    "where": True,
    "casting": "same_kind",
    "order": "K",
    "dtype": None,
    "subok": True,
    "axis": -1,
    "keepdims": False,
}
"""The arguments of ufuncs, which have no signature that Python can read."""
REDUCE_DEFAULTS = {"axis": 0, "dtype": None, "out": None, "keepdims": False, "where": True}


def call_ufunc(ufunc: np.ufunc, method: str, inputs: Any, options: dict[str, Any]) -> Any:
    """A NumPy or SciPy ufunc on operands of which at least one is symbolic. Raises
    UnsupportedError."""
    name = _qualified(ufunc)
    if method == "reduce" and ufunc in REDUCTIONS:
        given = {"axis": 0, **_meaningful(f"{name}.reduce", options, REDUCE_DEFAULTS)}
        return _call(f"{name}.reduce", FUNCTIONS[REDUCTIONS[ufunc]], inputs, given)
    given = _meaningful(name, options, UFUNC_DEFAULTS)
    if method == "outer":
        return _call(f"{name}.outer", at_all_pairs(_find(name)), inputs, given)
    if method != "__call__":
        raise UnsupportedError(f"{name}.{method} has no rule for symbolic arrays")
    return _call(name, _find(name), inputs, given)


def call_function(function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A NumPy function with a symbolic argument. Raises UnsupportedError."""
    name = _qualified(function)
    required, optional = _split(name, function, arguments, options)
    return _call(name, _find(name), required, optional)


OPTIONS = {"a_min": "low", "a_max": "high", "min": "low", "max": "high", "correction": "ddof"}
"""NumPy's names of options that differ from derivatrix's."""


def _split(
    name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that have no default, and by name, however they were passed, the others that
    differ from NumPy's defaults."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return arguments, options
    bound = signature.bind(*arguments, **options)
    required: list[Any] = []
    optional: dict[str, Any] = {}
    for key, value in bound.arguments.items():
        parameter = signature.parameters[key]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            required += value
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            optional |= value
        elif parameter.default is inspect.Parameter.empty or key in ("x", "y"):
            required.append(value)
        else:
            optional[key] = value
    defaults = {key: parameter.default for key, parameter in signature.parameters.items()}
    given = _meaningful(name, optional, UFUNC_DEFAULTS | defaults)
    return tuple(required), {OPTIONS.get(key, key): value for key, value in given.items()}


def _meaningful(
    name: str, options: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """The options that differ from NumPy's defaults. Raises UnsupportedError for a dtype that is
    not float64."""
    given = {}
    for key, value in options.items():
        default = defaults.get(key, np._NoValue)
        plain = isinstance(value, (bool, int, float, str)) and type(value) is type(default)
        if value is default or value is np._NoValue or (plain and value == default):
            continue
        if key != "dtype":
            given[key] = value
        elif np.dtype(value) != np.float64:
            raise UnsupportedError(
                f"{name}: dtype {np.dtype(value)} has no meaning for symbolic arrays; kernels "
                "compute in the floating-point type of their inputs"
            )
    return given


def _call(
    name: str, target: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """The call, or UnsupportedError that names NumPy's function and the argument that has no
    rule."""
    signature = inspect.signature(target)
    for key, value in options.items():
        if key not in signature.parameters:
            numpys = {new: old for old, new in OPTIONS.items()}.get(key, key)
            raise UnsupportedError(
                f"{name}: the argument {numpys}={shown(value)} has no rule for symbolic arrays; "
                "leave it out"
            )
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        raise UnsupportedError(f"{name} of symbolic arrays: {error}") from error
    return target(*arguments, **options)


def _qualified(function: Any) -> str:
    name = function.__name__
    if isinstance(function, np.ufunc):
        return f"numpy.{name}" if hasattr(np, name) else f"scipy.special.{name}"
    return f"{function.__module__}.{name}"


def find_public(name: str) -> Callable[..., Any] | None:
    """derivatrix's function of this name, if there is one."""
    return FUNCTIONS.get(name) or operations.find(name)


MODULES = ("numpy", "numpy.linalg", "scipy.special")
"""The modules whose functions derivatrix's are named after."""
EQUATIONS = {
    name for name, function in FUNCTIONS.items() if function.__module__ == implicit.__name__
}
"""derivatrix's functions of equations, as `argmin`, that have nothing but the name of NumPy's."""


def _find(name: str) -> Callable[..., Any]:
    module, _, short = name.rpartition(".")
    function = None
    if module in MODULES and short not in EQUATIONS:
        function = OTHERWISE.get(name) or RENAMED.get(short) or find_public(short)
    if function is None:
        raise UnsupportedError(f"{name} has no rule for symbolic arrays{hint(short)}")
    return function


def refuse_conversion() -> UnsupportedError:
    """The error for code that asks for a symbolic array's numbers, naming the function of NumPy
    or SciPy that did."""
    name = _asking()
    if not name:
        return UnsupportedError(
            "a symbolic array holds no numbers, so it cannot become a NumPy array; "
            "derivatrix.asarray takes lists of symbolic arrays, and NumPy's own functions take "
            "symbolic arrays as they are"
        )
    short = name.rpartition(".")[2]
    instead = f"use derivatrix.{short}" if find_public(short) else "it has no rule in derivatrix"
    return UnsupportedError(f"{name} cannot take symbolic arrays; {instead}")


def _asking() -> str:
    """The outermost public function of SciPy or NumPy among the callers nearest."""
    frame = sys._getframe(1)
    found = ""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in ("scipy", "numpy"):
            name = frame.f_code.co_name
            if name in ("wrapper", "wrapped", "inner"):
                wrapped = [part for part in frame.f_locals.values() if inspect.isfunction(part)]
                name = wrapped[0].__name__ if len(wrapped) == 1 else "_"
                module = wrapped[0].__module__ if wrapped else module
            if not name.startswith(("_", "<")):
                found = f"{'.'.join(module.split('.')[:2])}.{name}"
        elif module.partition(".")[0] != "derivatrix":
            break
        frame = frame.f_back  # type: ignore[assignment]
    return found
