"""Dimensions: integers and integer polynomials in named sizes, as SymPy expressions."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import sympy
from sympy.printing.latex import LatexPrinter

from derivatrix.compiler.ir.identifiers import require_variable
from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import DeclarationError

Dimension: TypeAlias = sympy.Expr
Shape: TypeAlias = tuple[Dimension, ...]

MAX_SIZE = 2**63 - 1
"""Longest axis of an array (int64)."""
MAX_POWER = 64
"""Highest power in a size."""
MAX_TERMS = 1000
"""Most terms of a size, multiplied out."""


class Wrapped(sympy.Function):
    """A number modulo a size, and 0 where the size is 0."""

    is_integer = True
    is_nonnegative = True

    @classmethod
    def eval(cls, number: sympy.Expr, size: sympy.Expr) -> sympy.Expr | None:
        if number.is_Integer and size.is_Integer:
            return number % size if size else size
        return None

    def _latex(self, printer: LatexPrinter) -> str:
        number, size = map(printer.doprint, self.args)
        return rf"({number} \bmod {size})"


def symbol(name: str) -> sympy.Symbol:
    """Return the size called `name`; two symbols of one name are one size."""
    return sympy.Symbol(name, integer=True, positive=True)


BATCH = symbol("batch")
"""The number of samples in a batch."""


def dims(names: str) -> Any:
    """Return symbolic dimensions named in a string such as "n m" or "n, m": a tuple of SymPy
    symbols, or for one name the symbol. Raises DeclarationError for a text without names."""
    parts = names.replace(",", " ").split() if isinstance(names, str) else []
    if not parts:
        raise DeclarationError(
            f'dims({shown(names)}): expected a text of at least one name, as in dims("n m")'
        )
    symbols = tuple(symbol(require_variable(part, "a size")) for part in parts)
    return symbols if len(symbols) > 1 else symbols[0]


def dimension(value: object, context: str = "dimension") -> Dimension:
    """Convert an int, a symbol, or arithmetic of them to a dimension. Raises DeclarationError."""
    if isinstance(value, str):
        value = symbol(require_variable(value, f"a size ({context})"))

    def refusal() -> DeclarationError:
        return DeclarationError(
            f"{context}: a dimension is an integer or a symbol, not {shown(value)}"
        )

    if isinstance(value, bool) or hasattr(type(value), "_sympy_"):  # a symbolic array
        raise refusal()
    try:
        expression = sympy.sympify(value, strict=True)
    except (sympy.SympifyError, TypeError) as error:
        raise refusal() from error
    if not isinstance(expression, sympy.Expr) or expression.is_Matrix:
        raise refusal()
    numbers = expression.atoms(sympy.Rational)
    if any(abs(number) > MAX_SIZE for number in numbers) or not has_few_terms(expression):
        raise DeclarationError(
            f"{context}: {shown(value)} is too large for a size: its numbers are at most "
            f"{MAX_SIZE}, its powers at most {MAX_POWER} and its terms, multiplied out, {MAX_TERMS}"
        )
    foreign = [s for s in expression.free_symbols if s != symbol(s.name)]
    renames = {s: symbol(require_variable(s.name, f"a size ({context})")) for s in foreign}
    expression = sympy.expand(expression.xreplace(renames))
    placeholders = {part: sympy.Dummy() for part in expression.atoms(sympy.Min, Wrapped)}
    if not expression.xreplace(placeholders).is_polynomial():
        raise DeclarationError(f"{context}: {value} is no polynomial in dimensions")
    literal = expression.is_number and not (expression.is_Integer and expression >= 0)
    if literal or expression.is_negative:
        raise DeclarationError(f"{context}: {value} is no size (a non-negative integer)")
    return expression


def has_few_terms(expression: sympy.Expr) -> bool:
    """Return whether a polynomial is within MAX_TERMS and MAX_POWER, multiplied out."""
    try:
        return _terms(expression) <= MAX_TERMS
    except RecursionError:
        return False


def _terms(expression: sympy.Basic) -> float:
    """Bound the number of terms of a polynomial, multiplied out."""
    parts = [_terms(part) for part in expression.args]
    match expression:
        case sympy.Add():
            return sum(parts)
        case sympy.Mul():
            return math.prod(parts)
        case sympy.Pow() if expression.exp.is_Integer:
            power = abs(int(expression.exp))
            return math.inf if power > MAX_POWER else math.comb(int(parts[0]) + power - 1, power)
    return max(parts, default=1)


def as_shape(parts: tuple[object, ...], context: str = "shape") -> Shape:
    """Convert sizes, or one tuple or list of them, to a shape."""
    if len(parts) == 1 and isinstance(parts[0], (tuple, list)):
        parts = tuple(parts[0])
    return tuple(dimension(part, context) for part in parts)


def shape_text(shape: Shape) -> str:
    """Write the shape as Python prints a tuple: (n, 3), (n,), ()."""
    inner = ", ".join(str(size) for size in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def evaluate(expression: sympy.Expr, sizes: Mapping[str, int]) -> float | int:
    """Evaluate a coefficient or dimension; inf or nan where it divides by 0."""
    values = {s: sympy.Integer(sizes[s.name]) for s in expression.free_symbols}
    value = expression.xreplace(values)
    if value.is_finite is False:  # SymPy's 1/0 has no sign; NumPy's has the numerator's
        numerator = float(sympy.fraction(expression)[0].xreplace(values))
        return math.copysign(math.inf, numerator) if numerator else math.nan
    return int(value) if value.is_Integer else float(value)


LENGTH = sympy.Symbol("axis_length", integer=True, nonnegative=True)
"""The length of the axis that a size is read from."""


class Reading(NamedTuple):
    """The place where a size can be read: array number `position`, `axis`. `value` is the size in
    terms of LENGTH, the length of that axis, and of sizes read before. `exact`: every length is
    that of some size."""

    position: int
    axis: int
    value: sympy.Expr
    exact: bool


def readings(shapes: Sequence[Shape]) -> dict[sympy.Symbol, Reading]:
    """Map each size that the shapes determine to a place where it can be read: n off an axis n, or
    2 n, or n + p once p is known. Plain axes are preferred."""
    axes = [
        (position, axis, length)
        for position, shape in enumerate(shapes)
        for axis, length in enumerate(shape)
    ]
    axes.sort(key=lambda entry: not entry[2].is_Symbol)
    result: dict[sympy.Symbol, Reading] = {}
    count = -1
    while count < len(result):
        count = len(result)
        for position, axis, length in axes:
            unread = [symbol for symbol in length.free_symbols if symbol not in result]
            is_polynomial = not length.has(sympy.Min)
            if len(unread) == 1 and is_polynomial and sympy.Poly(length, unread[0]).degree() == 1:
                factor = length.coeff(unread[0], 1)
                # SymPy takes sizes for positive
                divisor = factor if factor.is_number else sympy.Max(1, factor, evaluate=False)
                value = sympy.expand(LENGTH - length.coeff(unread[0], 0)) / divisor
                exact = factor == 1
                value = value if exact else sympy.floor(value)
                result[unread[0]] = Reading(position, axis, value, exact)
    return result
