"""Dispatch of NumPy's ufuncs and array functions on symbolic arrays, by name."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from derivatrix.compiler.frontends import implicit, operations
from derivatrix.compiler.frontends.arrays import FUNCTIONS
from derivatrix.compiler.frontends.numpy_names import BY_QUALIFIED_NAME, RENAMED, at_all_pairs
from derivatrix.compiler.ir.methods import hint
from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import UnsupportedError

METHODS: dict[str, dict[np.ufunc, str]] = {
    "reduce": {
        np.add: "sum",
        np.multiply: "prod",
        np.maximum: "max",
        np.minimum: "min",
        np.logaddexp: "logsumexp",
    },
    "accumulate": {np.add: "cumsum", np.multiply: "cumprod", np.logaddexp: "logcumsumexp"},
}
"""Method of a ufunc -> ufunc -> the function that computes it."""

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
"""The default arguments of ufuncs: `inspect` finds no signature of them."""
REDUCE_DEFAULTS = {"axis": 0, "dtype": None, "out": None, "keepdims": False, "where": True}


def call_ufunc(ufunc: np.ufunc, method: str, inputs: Any, options: dict[str, Any]) -> Any:
    """Apply a NumPy or SciPy ufunc to operands of which at least one is symbolic. Raises
    UnsupportedError."""
    name = _qualified(ufunc)
    if (function := METHODS.get(method, {}).get(ufunc)) is not None:
        text = f"{name}.{method}"
        explicit = {"axis": 0, **_without_defaults(text, options, REDUCE_DEFAULTS)}
        return _call(text, FUNCTIONS[function], inputs, explicit)
    explicit = _without_defaults(name, options, UFUNC_DEFAULTS)
    if method == "outer":
        return _call(f"{name}.outer", at_all_pairs(_find(name)), inputs, explicit)
    if method != "__call__":
        raise UnsupportedError(f"{name}.{method} has no rule for symbolic arrays")
    return _call(name, _find(name), inputs, explicit)


def call_function(function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call derivatrix's counterpart of a NumPy function. Raises UnsupportedError."""
    name = _qualified(function)
    required, optional = _split_arguments(name, function, arguments, options)
    return _call(name, _find(name), required, optional)


OPTIONS = {"a_min": "low", "a_max": "high", "min": "low", "max": "high", "correction": "ddof"}
"""NumPy's names of options that differ from derivatrix's."""


def _split_arguments(
    name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Split a call into the arguments without default, and those whose value differs from NumPy's
    default, by name however they were passed."""
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
        # numpy.where declares x and y with the default None, although it needs both
        elif parameter.default is inspect.Parameter.empty or key in ("x", "y"):
            required.append(value)
        else:
            optional[key] = value
    defaults = {key: parameter.default for key, parameter in signature.parameters.items()}
    # numpy.clip, for one, passes `**kwargs` on to a ufunc
    explicit = _without_defaults(name, optional, UFUNC_DEFAULTS | defaults)
    return tuple(required), {OPTIONS.get(key, key): value for key, value in explicit.items()}


def _without_defaults(
    name: str, options: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Select the options that differ from NumPy's defaults. Raises UnsupportedError for a dtype
    that is not float64."""
    explicit = {}
    for key, value in options.items():
        default = defaults.get(key, np._NoValue)
        # == of arrays has no truth value, and True == 1
        is_plain = isinstance(value, (bool, int, float, str)) and type(value) is type(default)
        if value is default or value is np._NoValue or (is_plain and value == default):
            continue
        if key != "dtype":
            explicit[key] = value
        elif np.dtype(value) != np.float64:
            raise UnsupportedError(
                f"{name}: dtype {np.dtype(value)} has no meaning for symbolic arrays; kernels "
                "compute in the floating-point type of their inputs"
            )
    return explicit


def _call(
    name: str, target: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Call `target`. Raises UnsupportedError with NumPy's name of the function and of an argument
    that `target` does not have."""
    signature = inspect.signature(target)
    for key, value in options.items():
        if key not in signature.parameters:
            numpy_key = {new: old for old, new in OPTIONS.items()}.get(key, key)
            raise UnsupportedError(
                f"{name}: the argument {numpy_key}={shown(value)} has no rule for symbolic arrays; "
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
    """Return derivatrix's function of this name, if there is one."""
    return FUNCTIONS.get(name) or operations.find(name)


MODULES = ("numpy", "numpy.linalg", "scipy.special")
"""The modules whose functions derivatrix's are named after."""
EQUATIONS = {
    name for name, function in FUNCTIONS.items() if function.__module__ == implicit.__name__
}
"""Functions such as `argmin`, which share nothing but the name with NumPy's."""


def _find(name: str) -> Callable[..., Any]:
    module, _, short = name.rpartition(".")
    function = None
    if module in MODULES and short not in EQUATIONS:
        function = BY_QUALIFIED_NAME.get(name) or RENAMED.get(short) or find_public(short)
    if function is None:
        raise UnsupportedError(f"{name} has no rule for symbolic arrays{hint(short)}")
    return function


def refuse_conversion() -> UnsupportedError:
    """Make the error for a conversion of a symbolic array to numbers, which names the NumPy or
    SciPy function that asked for it."""
    name = _outermost_caller()
    if not name:
        return UnsupportedError(
            "a symbolic array holds no numbers, so it cannot become a NumPy array; "
            "derivatrix.asarray takes lists of symbolic arrays, and NumPy's own functions take "
            "symbolic arrays as they are"
        )
    short = name.rpartition(".")[2]
    instead = f"use derivatrix.{short}" if find_public(short) else "it has no rule in derivatrix"
    return UnsupportedError(f"{name} cannot take symbolic arrays; {instead}")


def _outermost_caller() -> str:
    """Return the name of the outermost public SciPy or NumPy function in the innermost run of their
    frames on the call stack; "" if there is none."""
    frame = sys._getframe(1)
    caller = ""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in ("scipy", "numpy"):
            name = frame.f_code.co_name
            if name in ("wrapper", "wrapped", "inner"):  # a decorator: its closure has the function
                wrapped = [part for part in frame.f_locals.values() if inspect.isfunction(part)]
                name = wrapped[0].__name__ if len(wrapped) == 1 else "_"
                module = wrapped[0].__module__ if wrapped else module
            if not name.startswith(("_", "<")):
                caller = f"{'.'.join(module.split('.')[:2])}.{name}"
        elif module.partition(".")[0] != "derivatrix":
            break
        frame = frame.f_back  # type: ignore[assignment]
    return caller
