"""Elementwise functions under NumPy's and SciPy's names."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.arrays import Array, asarray, elementwise
from derivatrix.runtime.errors import DeclarationError


def _elementwise(name: str, about: str = "", count: int = 1) -> Callable[..., Array]:
    """Make the public function of `count` arrays for the scalar function `name`; `about` is its
    docstring."""
    build = scalar_functions.FUNCTIONS[name]

    def function(*arguments: Any) -> Array:
        if len(arguments) != count:
            arrays = "1 array" if count == 1 else f"{count} arrays"
            raise DeclarationError(f"{name} takes {arrays}, not {len(arguments)}")
        operands = [asarray(argument) for argument in arguments]
        slots = [ir.slot(position) for position in range(len(operands))]
        form = f"{name}({', '.join(['{}'] * len(operands))})"
        return elementwise(build(*slots), *operands, form=form)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = about or f"{name}, entry by entry, as NumPy or SciPy has it."
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
arctan2 = _elementwise("arctan2", count=2)
hypot = _elementwise("hypot", count=2)
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
logaddexp = _elementwise("logaddexp", count=2)
relu = _elementwise("relu")
abs = _elementwise("abs")
sign = _elementwise("sign")
floor = _elementwise("floor")
ceil = _elementwise("ceil")
maximum = _elementwise("maximum", count=2)
minimum = _elementwise("minimum", count=2)
gamma = _elementwise("gamma")
gammaln = _elementwise("gammaln")
loggamma = _elementwise(
    "loggamma", "log(gamma(x)), entry by entry; nan for x < 0, where SciPy's is."
)
digamma = _elementwise("digamma")
polygamma = _elementwise(
    "polygamma", "polygamma(n, x), entry by entry: digamma's derivative number n.", count=2
)
zeta = _elementwise(
    "zeta", "zeta(s, q), entry by entry: Hurwitz's function of a number s > 1.", count=2
)
besselj = _elementwise(
    "besselj", "besselj(order, x), entry by entry; SciPy's jv of a numeric order.", count=2
)
bessely = _elementwise(
    "bessely", "bessely(order, x), entry by entry; SciPy's yv of a numeric order.", count=2
)
besseli = _elementwise(
    "besseli", "besseli(order, x), entry by entry; SciPy's iv of a numeric order.", count=2
)
besselk = _elementwise(
    "besselk", "besselk(order, x), entry by entry; SciPy's kv of a numeric order.", count=2
)
erfinv = _elementwise("erfinv")
xlogy = _elementwise("xlogy", "x * log(y), entry by entry, and 0 where x is.", count=2)
xlog1py = _elementwise("xlog1py", "x * log(1 + y), entry by entry, and 0 where x is.", count=2)
entr = _elementwise("entr", "-x * log(x), entry by entry; 0 at 0, and -inf for x < 0.")
rel_entr = _elementwise(
    "rel_entr",
    "rel_entr(x, y), entry by entry: x * log(x / y); 0 at x = 0, and inf where x or y is negative.",
    count=2,
)
huber = _elementwise(
    "huber",
    "huber(delta, x), entry by entry: x**2 / 2 where |x| <= delta, else delta * (|x| - delta / 2); "
    "inf for delta < 0.",
    count=2,
)


sinc = _elementwise("sinc", "sin(pi * x) / (pi * x), entry by entry, and 1 at 0.")


def _operator(
    name: str, function: Callable[[Array, Array], Array], about: str
) -> Callable[[Any, Any], Array]:
    """Make the public function of an operator: it converts its operands to arrays first."""

    def operation(left: Any, right: Any) -> Array:
        return function(asarray(left), asarray(right))

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = about
    return operation


add = _operator("add", operator.add, "left + right.")
subtract = _operator("subtract", operator.sub, "left - right.")
multiply = _operator("multiply", operator.mul, "left * right, entry by entry.")
divide = _operator("divide", operator.truediv, "left / right, entry by entry.")
floor_divide = _operator("floor_divide", operator.floordiv, "floor(left / right), entry by entry.")
logical_and = _operator("logical_and", operator.and_, "1 where both conditions hold, else 0.")
logical_or = _operator("logical_or", operator.or_, "1 where at least one condition holds, else 0.")
remainder = _operator(
    "remainder",
    operator.mod,
    "left - right * floor(left / right), entry by entry: of the sign of `right`.",
)


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


def clip(array: Any, low: Any = None, high: Any = None) -> Array:
    """Entries limited to low .. high; None leaves a side open."""
    result = asarray(array) if low is None else maximum(array, low)
    return result if high is None else minimum(result, high)


def logit(array: Any) -> Array:
    """log(x / (1 - x)), entry by entry."""
    # log1p is accurate for small x, where 1 - x rounds to 1
    return log(array) - log1p(-asarray(array))


def log_expit(array: Any) -> Array:
    """log(1 / (1 + exp(-x))), entry by entry, without overflow."""
    return -softplus(-asarray(array))


def logical_not(condition: Any) -> Array:
    """1 where the condition does not hold, else 0."""
    return ~asarray(condition)
