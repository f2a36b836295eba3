"""NumPy's functions called on symbolic arrays: ufuncs and array functions, by their names."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from derivatrix.compiler.frontends import operations
from derivatrix.compiler.frontends.arrays import FUNCTIONS
from derivatrix.compiler.ir.arrays import Array, asarray, where
from derivatrix.compiler.ir.methods import hint
from derivatrix.compiler.operations.singular import SVDVALS
from derivatrix.runtime.errors import UnsupportedError


def _outer(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function at all pairs of entries."""

    def pairs(left: Any, right: Any) -> Array:
        one, two = asarray(left), asarray(right)
        return function(one[(..., *(None,) * two.ndim)], two)

    return pairs


def _select(conditions: Sequence[Any], choices: Sequence[Any], default: Any) -> Array:
    """The choice of the first condition that holds."""
    result = asarray(default)
    for condition, choice in reversed(list(zip(conditions, choices, strict=True))):
        result = where(condition, choice, result)
    return result


class LstsqResult(NamedTuple):
    """What numpy.linalg.lstsq returns, for a matrix of full rank."""

    x: Array
    residuals: Array
    rank: Any
    s: Array


def _lstsq(matrix: Array, right: Array, rcond: Any) -> LstsqResult:
    """The solution, the columns' sums of squared residuals (over more rows than columns), the
    rank, which is full, and the singular values."""
    if rcond is not None:
        raise UnsupportedError("numpy.linalg.lstsq: rcond has no rule; the matrix has full rank")
    solution = FUNCTIONS["lstsq"](matrix, right)
    residuals = FUNCTIONS["sum"]((right - matrix @ solution) ** 2, 0)
    values = operations.calling(SVDVALS)(matrix)
    residuals = residuals if right.ndim > 1 else residuals[None]
    return LstsqResult(solution, residuals, values.shape[-1], values)


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
    "bitwise_and": FUNCTIONS["logical_and"],
    "bitwise_or": FUNCTIONS["logical_or"],
    "invert": FUNCTIONS["logical_not"],
    "divmod": lambda left, right: divmod(asarray(left), asarray(right)),
    "vecdot": lambda left, right: FUNCTIONS["sum"](asarray(left) * asarray(right), -1),
    "fmax": FUNCTIONS["maximum"],
    "fmin": FUNCTIONS["minimum"],
    "deg2rad": lambda angle: asarray(angle) * (np.pi / 180),
    "radians": lambda angle: asarray(angle) * (np.pi / 180),
    "rad2deg": lambda angle: asarray(angle) * (180 / np.pi),
    "degrees": lambda angle: asarray(angle) * (180 / np.pi),
    "conjugate": asarray,
    "real": asarray,
    "copy": asarray,
    "shape": lambda array: asarray(array).shape,
    "ndim": lambda array: asarray(array).ndim,
    "size": lambda array: asarray(array).size,
    "result_type": lambda *parts: np.dtype(np.float64),
    "amax": FUNCTIONS["max"],
    "amin": FUNCTIONS["min"],
    "matrix_norm": lambda array, **options: FUNCTIONS["norm"](array, axis=(-2, -1), **options),
    "matvec": lambda matrix, vector: (asarray(matrix) @ asarray(vector)[..., None])[..., 0],
    "vecmat": lambda vector, matrix: (asarray(vector)[..., None, :] @ asarray(matrix))[..., 0, :],
    "fliplr": lambda array: FUNCTIONS["flip"](array, 1),
    "flipud": lambda array: FUNCTIONS["flip"](array, 0),
    "atleast_1d": lambda array: asarray(array) if asarray(array).ndim else asarray(array)[None],
    "atleast_2d": lambda array: asarray(array)[(None,) * max(0, 2 - asarray(array).ndim)],
    "heaviside": lambda array, value: where(asarray(array) == 0, value, asarray(array) > 0),
    "select": lambda conditions, choices, default=0: _select(conditions, choices, default),
    **{
        f"{kind}{order}": partial(FUNCTIONS[f"bessel{kind}"], order)
        for kind in "jyik"
        for order in (0, 1)
    },
    **{f"{kind}v": FUNCTIONS[f"bessel{kind}"] for kind in "jyik"},
    "ndtr": FUNCTIONS["normcdf"],
    "psi": FUNCTIONS["digamma"],
}
"""NumPy's and SciPy's names that differ from derivatrix's."""

OTHERWISE: dict[str, Callable[..., Any]] = {
    "lstsq": lambda matrix, right, rcond=None: _lstsq(asarray(matrix), asarray(right), rcond),
    "svd": lambda array, full_matrices=True, **options: FUNCTIONS["svd"](
        array, full_matrices, **options
    ),
}
"""NumPy's functions that return something else, by default, than derivatrix's of the name."""


REDUCTIONS = {np.add: "sum", np.multiply: "prod"}
"""Ufuncs -> the function that is their `reduce`."""


def call_ufunc(ufunc: np.ufunc, method: str, inputs: Any, options: dict[str, Any]) -> Any:
    """A NumPy or SciPy ufunc on operands of which at least one is symbolic. Raises
    UnsupportedError."""
    name = _qualified(ufunc)
    given = _meaningful(name, options)
    if method == "reduce" and ufunc in REDUCTIONS:
        target = FUNCTIONS[REDUCTIONS[ufunc]]
        return _call(f"{name}.reduce", target, inputs, {"axis": 0, **given})
    if method == "outer":
        return _call(f"{name}.outer", _outer(_find(name)), inputs, given)
    if method != "__call__":
        raise UnsupportedError(f"{name}.{method} has no rule for symbolic arrays")
    return _call(name, _find(name), inputs, given)


def call_function(function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A NumPy function with a symbolic argument. Raises UnsupportedError."""
    name = _qualified(function)
    target = _find(name)
    required, optional = _split(function, arguments, options)
    given = _meaningful(name, optional)
    _require_same_meaning(function, required, given)
    return _call(name, target, required, given)


OPTIONS = {"a_min": "low", "a_max": "high", "min": "low", "max": "high"}
"""NumPy's names of options that differ from derivatrix's."""


def _split(
    function: Any, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that have no default, and the others by name, however they were passed."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return arguments, options
    bound = signature.bind(*arguments, **options)
    required: list[Any] = []
    optional: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            required += value
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            optional |= value
        elif parameter.default is inspect.Parameter.empty or name in ("x", "y"):
            required.append(value)
        else:
            optional[OPTIONS.get(name, name)] = value
    return tuple(required), optional


def _meaningful(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without those that say what holds anyway. Raises UnsupportedError for a dtype
    that is not float64."""
    kept = {}
    for key, value in options.items():
        if value is np._NoValue or (value is None and key in ("out", "dtype", "where", "order")):
            continue
        if key == "dtype":
            if np.dtype(value) != np.float64:
                raise UnsupportedError(
                    f"{name}: dtype {np.dtype(value)} has no meaning for symbolic arrays; kernels "
                    "compute in the floating-point type of their inputs"
                )
        elif not (key == "where" and value is True) and key not in ("casting", "order", "subok"):
            kept[key] = value
    return kept


def _call(
    name: str, target: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """The call, or UnsupportedError that names NumPy's function and what does not fit."""
    try:
        inspect.signature(target).bind(*arguments, **options)
    except TypeError as error:
        raise UnsupportedError(f"{name} of symbolic arrays: {error}") from error
    return target(*arguments, **options)


MATRIX_ONLY = {"trace": 2, "diagonal": 2, "diag": 2, "outer": 1, "cumsum": 1}
"""Where NumPy's meaning for more axes differs from derivatrix's: the most axes that are read."""


def _require_same_meaning(
    function: Any, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    name = function.__name__
    if function.__module__ == "numpy.linalg" or name not in MATRIX_ONLY:
        return
    if name == "cumsum" and options.get("axis") is not None:
        return
    for argument in arguments[:2] if name == "outer" else arguments[:1]:
        rank = asarray(argument).ndim
        if rank > MATRIX_ONLY[name]:
            raise UnsupportedError(
                f"numpy.{name} of an array with {rank} axes has no rule; "
                f"use derivatrix.{name}, einsum or an axis"
            )


def _qualified(function: Any) -> str:
    name = function.__name__
    if isinstance(function, np.ufunc):
        return f"numpy.{name}" if hasattr(np, name) else f"scipy.special.{name}"
    return f"{function.__module__}.{name}"


def find_public(name: str) -> Callable[..., Any] | None:
    """derivatrix's function of this name, if there is one."""
    return FUNCTIONS.get(name) or operations.find(name)


def _find(name: str) -> Callable[..., Any]:
    short = name.rpartition(".")[2]
    function = OTHERWISE.get(short) or RENAMED.get(short) or find_public(short)
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
