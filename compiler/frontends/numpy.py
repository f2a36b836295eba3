"""NumPy's functions called on symbolic arrays: ufuncs and array functions, by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from derivatrix.compiler.arrays import Array, asarray
from derivatrix.compiler.frontends.arrays import FUNCTIONS
from derivatrix.runtime.errors import UnsupportedError

RENAMED: dict[str, Callable[..., Any]] = {
    "absolute": FUNCTIONS["abs"],
    "fabs": FUNCTIONS["abs"],
    "true_divide": FUNCTIONS["divide"],
    "float_power": FUNCTIONS["power"],
    "positive": asarray,
    "acos": FUNCTIONS["arccos"],
    "asin": FUNCTIONS["arcsin"],
    "atan": FUNCTIONS["arctan"],
    "atan2": FUNCTIONS["arctan2"],
    "acosh": FUNCTIONS["arccosh"],
    "asinh": FUNCTIONS["arcsinh"],
    "atanh": FUNCTIONS["arctanh"],
    "pow": FUNCTIONS["power"],
    "greater": lambda left, right: asarray(left) > asarray(right),
    "greater_equal": lambda left, right: asarray(left) >= asarray(right),
    "less": lambda left, right: asarray(left) < asarray(right),
    "less_equal": lambda left, right: asarray(left) <= asarray(right),
    "equal": lambda left, right: asarray(left) == asarray(right),
    "not_equal": lambda left, right: asarray(left) != asarray(right),
    "vecdot": lambda left, right: FUNCTIONS["sum"](asarray(left) * asarray(right), -1),
}
"""NumPy's names that differ from derivatrix's."""


def call_ufunc(ufunc: np.ufunc, method: str, inputs: Any, options: dict[str, Any]) -> Array:
    """A NumPy ufunc on operands of which at least one is symbolic. Raises UnsupportedError."""
    name = ufunc.__name__
    if method == "reduce" and name == "add":
        allowed = {key: options[key] for key in ("axis", "keepdims") if key in options}
        return FUNCTIONS["sum"](inputs[0], **allowed)
    if method != "__call__":
        raise UnsupportedError(f"numpy.{name}.{method} has no rule")
    given = {key: value for key, value in options.items() if value is not None}
    if given:
        raise UnsupportedError(f"numpy.{name}: option {next(iter(given))} has no meaning here")
    return _find(name)(*inputs)


def call_function(function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A NumPy function with a symbolic argument. Raises UnsupportedError."""
    name = function.__name__
    target = _find(name)
    _require_same_meaning(function, arguments, options)
    try:
        return target(*arguments, **options)
    except TypeError as error:
        if isinstance(error, UnsupportedError) or "argument" not in str(error):
            raise
        raise UnsupportedError(f"numpy.{name}: {error}") from error


MATRIX_ONLY = {"trace": 2, "diagonal": 2, "diag": 2, "dot": 2, "outer": 1, "cumsum": 1}
"""Where NumPy's meaning for more axes differs from derivatrix's: the most axes that are read."""


def _require_same_meaning(
    function: Any, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    name = function.__name__
    if function.__module__ == "numpy.linalg" or name not in MATRIX_ONLY:
        return
    if name == "cumsum" and (len(arguments) > 1 or "axis" in options):
        return
    for argument in arguments[:2] if name in ("dot", "outer") else arguments[:1]:
        rank = asarray(argument).ndim
        if rank > MATRIX_ONLY[name]:
            raise UnsupportedError(
                f"numpy.{name} of an array with {rank} axes has no rule; "
                f"use derivatrix.{name}, einsum or an axis"
            )


def _find(name: str) -> Callable[..., Any]:
    function = RENAMED.get(name) or FUNCTIONS.get(name)
    if function is None:
        raise UnsupportedError(f"numpy.{name} has no rule for symbolic arrays")
    return function
