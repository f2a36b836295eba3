"""NumPy's and SciPy's functions of single entries."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.arrays import Array, asarray, elementwise
from derivatrix.runtime.errors import DeclarationError


def _named(name: str, about: str = "", count: int = 1) -> Callable[..., Array]:
    """The elementwise function of `count` arrays that NumPy or SciPy calls `name`, or what
    `about` says."""
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


exp = _named("exp")
exp2 = _named("exp2")
expm1 = _named("expm1")
log = _named("log")
log2 = _named("log2")
log10 = _named("log10")
log1p = _named("log1p")
sqrt = _named("sqrt")
cbrt = _named("cbrt")
sin = _named("sin")
cos = _named("cos")
tan = _named("tan")
arcsin = _named("arcsin")
arccos = _named("arccos")
arctan = _named("arctan")
arctan2 = _named("arctan2", count=2)
hypot = _named("hypot", count=2)
sinh = _named("sinh")
cosh = _named("cosh")
tanh = _named("tanh")
arcsinh = _named("arcsinh")
arccosh = _named("arccosh")
arctanh = _named("arctanh")
erf = _named("erf")
erfc = _named("erfc")
normcdf = _named("normcdf")
sigmoid = _named("sigmoid")
expit = _named("expit")
softplus = _named("softplus")
logaddexp = _named("logaddexp", count=2)
relu = _named("relu")
abs = _named("abs")
sign = _named("sign")
floor = _named("floor")
ceil = _named("ceil")
maximum = _named("maximum", count=2)
minimum = _named("minimum", count=2)
gamma = _named("gamma")
gammaln = _named("gammaln")
loggamma = _named("loggamma", "log(gamma(x)), entry by entry; nan for x < 0, where SciPy's is.")
digamma = _named("digamma")
polygamma = _named(
    "polygamma", "polygamma(n, x), entry by entry: digamma's derivative number n.", count=2
)
zeta = _named("zeta", "zeta(s, q), entry by entry: Hurwitz's function of a number s > 1.", count=2)
besselj = _named(
    "besselj", "besselj(order, x), entry by entry; SciPy's jv of a numeric order.", count=2
)
bessely = _named(
    "bessely", "bessely(order, x), entry by entry; SciPy's yv of a numeric order.", count=2
)
besseli = _named(
    "besseli", "besseli(order, x), entry by entry; SciPy's iv of a numeric order.", count=2
)
besselk = _named(
    "besselk", "besselk(order, x), entry by entry; SciPy's kv of a numeric order.", count=2
)
erfinv = _named("erfinv")
xlogy = _named("xlogy", "x * log(y), entry by entry, and 0 where x is.", count=2)
xlog1py = _named("xlog1py", "x * log(1 + y), entry by entry, and 0 where x is.", count=2)
entr = _named("entr", "-x * log(x), entry by entry; 0 at 0, and -inf for x < 0.")
rel_entr = _named(
    "rel_entr",
    "rel_entr(x, y), entry by entry: x * log(x / y); 0 at x = 0, and inf where x or y is negative.",
    count=2,
)
huber = _named(
    "huber",
    "huber(delta, x), entry by entry: x**2 / 2 where |x| <= delta, else delta * (|x| - delta / 2); "
    "inf for delta < 0.",
    count=2,
)


def _operator(
    name: str, function: Callable[[Array, Array], Array], about: str
) -> Callable[[Any, Any], Array]:
    """The public function of what may become arrays that is an operator of arrays."""

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
    return log(array) - log1p(-asarray(array))


def log_expit(array: Any) -> Array:
    """log(1 / (1 + exp(-x))), entry by entry, without overflow."""
    return -softplus(-asarray(array))


def logical_not(condition: Any) -> Array:
    """1 where the condition does not hold, else 0."""
    return ~asarray(condition)
