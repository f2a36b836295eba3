"""NumPy's and SciPy's functions of single entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from derivatrix.compiler import ir, scalars
from derivatrix.compiler.arrays import Array, asarray, elementwise, where


def _elementwise(name: str) -> Callable[..., Array]:
    """The elementwise function that NumPy or SciPy calls `name`."""
    build = scalars.FUNCTIONS[name]

    def function(*arguments: Any) -> Array:
        operands = [asarray(argument) for argument in arguments]
        slots = [ir.slot(position) for position in range(len(operands))]
        return elementwise(build(*slots), *operands)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name}, entry by entry, as NumPy or SciPy has it."
    return function


exp = _elementwise("exp")
exp2 = _elementwise("exp2")
expm1 = _elementwise("expm1")
log = _elementwise("log")
log2 = _elementwise("log2")
log10 = _elementwise("log10")
log1p = _elementwise("log1p")
sqrt = _elementwise("sqrt")
cbrt = _elementwise("cbrt")
sin = _elementwise("sin")
cos = _elementwise("cos")
tan = _elementwise("tan")
arcsin = _elementwise("arcsin")
arccos = _elementwise("arccos")
arctan = _elementwise("arctan")
arctan2 = _elementwise("arctan2")
hypot = _elementwise("hypot")
sinh = _elementwise("sinh")
cosh = _elementwise("cosh")
tanh = _elementwise("tanh")
arcsinh = _elementwise("arcsinh")
arccosh = _elementwise("arccosh")
arctanh = _elementwise("arctanh")
erf = _elementwise("erf")
erfc = _elementwise("erfc")
normcdf = _elementwise("normcdf")
sigmoid = _elementwise("sigmoid")
expit = _elementwise("expit")
softplus = _elementwise("softplus")
logaddexp = _elementwise("logaddexp")
relu = _elementwise("relu")
abs = _elementwise("abs")
sign = _elementwise("sign")
floor = _elementwise("floor")
ceil = _elementwise("ceil")
maximum = _elementwise("maximum")
minimum = _elementwise("minimum")
gamma = _elementwise("gamma")
gammaln = _elementwise("gammaln")


def add(left: Any, right: Any) -> Array:
    """left + right."""
    return asarray(left) + asarray(right)


def subtract(left: Any, right: Any) -> Array:
    """left - right."""
    return asarray(left) - asarray(right)


def multiply(left: Any, right: Any) -> Array:
    """left * right, entry by entry."""
    return asarray(left) * asarray(right)


def divide(left: Any, right: Any) -> Array:
    """left / right, entry by entry."""
    return asarray(left) / asarray(right)


def power(base: Any, exponent: Any) -> Array:
    """base ** exponent, entry by entry."""
    return asarray(base) ** asarray(exponent)


def negative(array: Any) -> Array:
    """-array."""
    return -asarray(array)


def square(array: Any) -> Array:
    """array ** 2, entry by entry."""
    return asarray(array) ** 2


def reciprocal(array: Any) -> Array:
    """1 / array, entry by entry."""
    return 1 / asarray(array)


def clip(array: Any, low: Any, high: Any) -> Array:
    """Entries limited to low .. high."""
    return minimum(maximum(array, low), high)

__all__ = [
    "abs",
    "add",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "cbrt",
    "ceil",
    "clip",
    "cos",
    "cosh",
    "divide",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expit",
    "expm1",
    "floor",
    "gamma",
    "gammaln",
    "hypot",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "normcdf",
    "power",
    "reciprocal",
    "relu",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "softplus",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
]
