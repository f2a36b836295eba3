"""NumPy's and SciPy's functions whose names, arguments or meaning differ from derivatrix's.

They have some of NumPy's parameters, under NumPy's names and with its defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from derivatrix.compiler.frontends import operations
from derivatrix.compiler.frontends.arrays import FUNCTIONS
from derivatrix.compiler.ir.arrays import Array, asarray, at_least, where
from derivatrix.compiler.ir.messages import disagreement, require_square
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.operations.pseudoinverse import PINV
from derivatrix.compiler.operations.singular import SVDVALS
from derivatrix.runtime.errors import DeclarationError, UnsupportedError


def at_all_pairs(function: Callable[..., Array]) -> Callable[..., Array]:
    """Make a ufunc's `outer`, which applies `function` to all pairs of entries."""

    def pairs(left: Any, right: Any) -> Array:
        x, y = asarray(left), asarray(right)
        return function(x[(..., *(None,) * y.ndim)], y)

    return pairs


def _select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Array:
    """numpy.select: the choice of the first condition that holds. Raises DeclarationError."""
    if len(condlist) != len(choicelist):
        raise DeclarationError(
            f"numpy.select: {len(condlist)} conditions in condlist, and {len(choicelist)} choices "
            "in choicelist; expected as many"
        )
    result = asarray(default)
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        result = where(condition, choice, result)
    return result


class LstsqResult(NamedTuple):
    """The result of numpy.linalg.lstsq, for a matrix of full rank."""

    x: Array
    residuals: Any
    rank: Any
    s: Array


def _lstsq(a: Any, b: Any) -> LstsqResult:
    """numpy.linalg.lstsq for a matrix of full rank. As NumPy's, it has no residuals for a matrix
    with at most as many rows as columns."""
    matrix, right = asarray(a), asarray(b)
    solution = FUNCTIONS["lstsq"](matrix, right)
    values = operations.calling(SVDVALS)(matrix)
    rows, columns = matrix.node.shape[-2:]
    residuals: Any = np.empty(0)
    if not (columns - rows).is_nonnegative:
        residuals = FUNCTIONS["sum"]((right - matrix @ solution) ** 2, 0)
        residuals = residuals if right.ndim > 1 else residuals[None]
    return LstsqResult(solution, residuals, values.shape[-1], values)


def _of_triangle(name: str, array: Any, triangle: Any) -> Array:
    """Mirror the "L"ower or "U"pper triangle, as NumPy reads only one. A matrix that is symmetric
    by construction is returned as it is. Raises UnsupportedError, ShapeError."""
    if triangle not in ("L", "U", "l", "u"):
        raise UnsupportedError(f"{name}: UPLO={shown(triangle)} is neither 'L' nor 'U'")
    matrix = asarray(array)
    require_square(name, matrix.node)
    if "symmetric" in facts(matrix.node):
        return matrix
    strict = FUNCTIONS["tril"](matrix if triangle in "Ll" else matrix.mT, -1)
    return strict + strict.mT + matrix * FUNCTIONS["eye"](matrix.shape[-1])


def _cholesky(a: Any, upper: bool = False) -> Array:
    symmetric = _of_triangle("numpy.linalg.cholesky", a, "U" if upper else "L")
    return FUNCTIONS["cholesky"](symmetric, upper=upper)


def _svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    matrix = _of_triangle("numpy.linalg.svd", a, "L") if hermitian else a
    return FUNCTIONS["svd"](matrix, full_matrices, compute_uv=compute_uv)


def _pinv(a: Any, hermitian: bool = False) -> Array:
    matrix = _of_triangle("numpy.linalg.pinv", a, "L") if hermitian else a
    return operations.calling(PINV)(matrix)


def _first_two_axes(function: Callable[..., Array], name: str) -> Callable[..., Array]:
    """Make NumPy's version of `function`, whose matrices are in axes 0 and 1, or in given axes."""

    def along(a: Any, offset: int = 0, axis1: Any = None, axis2: Any = None) -> Array:
        operand = asarray(a)
        if axis1 is None and axis2 is None:
            _require_axes(name, operand, 2, "axis1=-2, axis2=-1")
            return function(operand, offset)
        axes = (0 if axis1 is None else axis1, 1 if axis2 is None else axis2)
        return function(FUNCTIONS["moveaxis"](operand, axes, (-2, -1)), offset)

    return along


def _require_axes(name: str, operand: Array, max_axes: int, advice: str) -> None:
    """Raise UnsupportedError where NumPy's meaning for more axes differs from derivatrix's."""
    if operand.ndim > max_axes:
        raise UnsupportedError(
            f"numpy.{name} of an array with {operand.ndim} axes has no rule; "
            f"give {advice}, or use derivatrix.{name} or einsum"
        )


def _cumulative(name: str) -> Callable[..., Array]:
    """Make NumPy's running sum or product, which is of all entries where no axis is given."""

    def along(a: Any, axis: int | None = None) -> Array:
        if axis is None:
            _require_axes(name, asarray(a), 1, "an axis")
        return FUNCTIONS[name](a, -1 if axis is None else axis)

    return along


def _diag(v: Any, k: int = 0) -> Array:
    _require_axes("diag", asarray(v), 2, "a matrix or a vector")
    return FUNCTIONS["diag"](v, k)


def _outer(a: Any, b: Any) -> Array:
    for operand in (a, b):
        _require_axes("outer", asarray(operand), 1, "vectors")
    return FUNCTIONS["outer"](FUNCTIONS["ravel"](a), FUNCTIONS["ravel"](b))


def _vecdot(left: Any, right: Any) -> Array:
    x, y = asarray(left), asarray(right)
    if not x.ndim or not y.ndim:
        raise disagreement("vecdot({}, {})", [x.node, y.node], "expected vectors")
    return (x[..., None, :] @ y[..., None])[..., 0, 0]


def _at_least(rank: int) -> Callable[..., Any]:
    """Make NumPy's atleast_1d or atleast_2d, which returns a tuple for several arrays."""

    def extended(*arrays: Any) -> Any:
        results = tuple(at_least(asarray(array), rank) for array in arrays)
        return results[0] if len(results) == 1 else results

    return extended


RENAMED: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("absolute", "fabs"), FUNCTIONS["abs"]),
    "true_divide": FUNCTIONS["divide"],
    "acos": FUNCTIONS["arccos"],
    "asin": FUNCTIONS["arcsin"],
    "atan": FUNCTIONS["arctan"],
    "atan2": FUNCTIONS["arctan2"],
    "acosh": FUNCTIONS["arccosh"],
    "asinh": FUNCTIONS["arcsinh"],
    "atanh": FUNCTIONS["arctanh"],
    **dict.fromkeys(("float_power", "pow"), FUNCTIONS["power"]),
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
    "vecdot": _vecdot,
    "fmax": FUNCTIONS["maximum"],
    "fmin": FUNCTIONS["minimum"],
    **dict.fromkeys(("deg2rad", "radians"), lambda angle: asarray(angle) * (np.pi / 180)),
    **dict.fromkeys(("rad2deg", "degrees"), lambda angle: asarray(angle) * (180 / np.pi)),
    **dict.fromkeys(("positive", "conjugate", "real", "copy"), asarray),
    "shape": lambda array: asarray(array).shape,
    "ndim": lambda array: asarray(array).ndim,
    "size": lambda array: asarray(array).size,
    "result_type": lambda *parts: np.dtype(np.float64),
    "amax": FUNCTIONS["max"],
    "amin": FUNCTIONS["min"],
    "matrix_norm": lambda x, ord="fro", keepdims=False: FUNCTIONS["norm"](
        x, ord, (-2, -1), keepdims
    ),
    "matvec": lambda matrix, vector: (asarray(matrix) @ asarray(vector)[..., None])[..., 0],
    "vecmat": lambda vector, matrix: (asarray(vector)[..., None, :] @ asarray(matrix))[..., 0, :],
    "fliplr": lambda array: FUNCTIONS["flip"](array, 1),
    "flipud": lambda array: FUNCTIONS["flip"](array, 0),
    "atleast_1d": _at_least(1),
    "atleast_2d": _at_least(2),
    "heaviside": lambda array, value: where(asarray(array) == 0, value, asarray(array) > 0),
    "select": _select,
    **{
        f"{kind}{order}": partial(FUNCTIONS[f"bessel{kind}"], order)
        for kind in "jyik"
        for order in (0, 1)
    },
    **{f"{kind}v": FUNCTIONS[f"bessel{kind}"] for kind in "jyik"},
    "ndtr": FUNCTIONS["normcdf"],
    "psi": FUNCTIONS["digamma"],
}
"""NumPy's or SciPy's name -> function, where derivatrix's name is another."""

BY_QUALIFIED_NAME: dict[str, Callable[..., Any]] = {
    "numpy.cumprod": _cumulative("cumprod"),
    "numpy.cumsum": _cumulative("cumsum"),
    "numpy.cumulative_prod": _cumulative("cumprod"),
    "numpy.cumulative_sum": _cumulative("cumsum"),
    "numpy.diag": _diag,
    "numpy.diagonal": _first_two_axes(FUNCTIONS["diagonal"], "diagonal"),
    "numpy.outer": _outer,
    "numpy.sort": lambda a, axis=-1, kind=None, stable=None: FUNCTIONS["sort"](a, axis),
    "numpy.trace": _first_two_axes(FUNCTIONS["trace"], "trace"),
    "numpy.linalg.cholesky": _cholesky,
    "numpy.linalg.eigh": lambda a, UPLO="L": FUNCTIONS["eigh"](
        _of_triangle("numpy.linalg.eigh", a, UPLO)
    ),
    "numpy.linalg.eigvalsh": lambda a, UPLO="L": FUNCTIONS["eigvalsh"](
        _of_triangle("numpy.linalg.eigvalsh", a, UPLO)
    ),
    "numpy.linalg.lstsq": _lstsq,
    "numpy.linalg.pinv": _pinv,
    "numpy.linalg.svd": _svd,
}
"""NumPy's qualified name -> function, where derivatrix's function of that name means something
else."""
