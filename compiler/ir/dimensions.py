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

LARGEST = 2**63 - 1
"""No axis of an array is longer."""
HIGHEST = 64
"""The highest power in a size."""
MOST_TERMS = 1000
"""How many terms a size may have, multiplied out."""


class Wrapped(sympy.Function):
    """A number modulo a size; 0 where the size is 0."""

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
    """The size called `name`; two symbols of one name are one size."""
    return sympy.Symbol(name, integer=True, positive=True)


BATCH = symbol("batch")
"""How many samples a batch has."""


def dims(names: str) -> Any:
    """Symbolic dimensions from a string such as "n m" or "n, m": a tuple of SymPy symbols, or, of
    one name, the symbol itself. Raises DeclarationError for a text without names."""
    parts = names.replace(",", " ").split() if isinstance(names, str) else []
    if not parts:
        raise DeclarationError(
            f'dims({shown(names)}): expected a text of at least one name, as in dims("n m")'
        )
    symbols = tuple(symbol(require_variable(part, "a size")) for part in parts)
    return symbols if len(symbols) > 1 else symbols[0]


def dimension(value: object, context: str = "dimension") -> Dimension:
    """`value` (an int, a symbol, or arithmetic of them) as a canonical dimension."""
    if isinstance(value, str):
        value = symbol(require_variable(value, f"a size ({context})"))

    def wrong() -> DeclarationError:
        return DeclarationError(
            f"{context}: a dimension is an integer or a symbol, not {shown(value)}"
        )

    if isinstance(value, bool) or hasattr(type(value), "_sympy_"):  # that is how arrays mix
        raise wrong()
    try:
        expression = sympy.sympify(value, strict=True)
    except (sympy.SympifyError, TypeError) as error:
        raise wrong() from error
    if not isinstance(expression, sympy.Expr) or expression.is_Matrix:
        raise wrong()
    numbers = expression.atoms(sympy.Rational)
    if any(abs(number) > LARGEST for number in numbers) or not has_few_terms(expression):
        raise DeclarationError(
            f"{context}: {shown(value)} is too large for a size: its numbers are at most "
            f"{LARGEST}, its powers at most {HIGHEST} and its terms, multiplied out, {MOST_TERMS}"
        )
    others = [s for s in expression.free_symbols if s != symbol(s.name)]
    renames = {s: symbol(require_variable(s.name, f"a size ({context})")) for s in others}
    expression = sympy.expand(expression.xreplace(renames))
    lesser = {part: sympy.Dummy() for part in expression.atoms(sympy.Min, Wrapped)}
    if not expression.xreplace(lesser).is_polynomial():
        raise DeclarationError(f"{context}: {value} is no polynomial in dimensions")
    literal = expression.is_number and not (expression.is_Integer and expression >= 0)
    if literal or expression.is_negative:
        raise DeclarationError(f"{context}: {value} is no size (a non-negative integer)")
    return expression


def has_few_terms(expression: sympy.Expr) -> bool:
    """Whether a polynomial has few terms, of no high powers, when it is multiplied out."""
    try:
        return _terms(expression) <= MOST_TERMS
    except RecursionError:
        return False


def _terms(expression: sympy.Basic) -> float:
    """A bound on the number of terms that a polynomial has when it is multiplied out."""
    parts = [_terms(part) for part in expression.args]
    match expression:
        case sympy.Add():
            return sum(parts)
        case sympy.Mul():
            return math.prod(parts)
        case sympy.Pow() if expression.exp.is_Integer:
            power = abs(int(expression.exp))
            return math.inf if power > HIGHEST else math.comb(int(parts[0]) + power - 1, power)
    return max(parts, default=1)


def as_shape(parts: tuple[object, ...], context: str = "shape") -> Shape:
    """A shape given as sizes, or as one tuple or list of them."""
    if len(parts) == 1 and isinstance(parts[0], (tuple, list)):
        parts = tuple(parts[0])
    return tuple(dimension(part, context) for part in parts)


def shape_text(shape: Shape) -> str:
    """The shape as Python prints a tuple: (n, 3), (n,), ()."""
    inner = ", ".join(str(size) for size in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def evaluate(expression: sympy.Expr, sizes: Mapping[str, int]) -> float | int:
    """The number that a coefficient or dimension stands for at the given sizes; inf or nan where
    it is divided by 0, as in NumPy."""
    known = {s: sympy.Integer(sizes[s.name]) for s in expression.free_symbols}
    value = expression.xreplace(known)
    if value.is_finite is False:
        above = float(sympy.fraction(expression)[0].xreplace(known))
        return math.copysign(math.inf, above) if above else math.nan
    return int(value) if value.is_Integer else float(value)


LENGTH = sympy.Symbol("axis_length", integer=True, nonnegative=True)


class Reading(NamedTuple):
    """Where a size is read: array number `position` has it on `axis`, and `value` says which it
    is, in terms of `LENGTH` and of sizes read before. `exact`: any length has such a size."""

    position: int
    axis: int
    value: sympy.Expr
    exact: bool


def readings(shapes: Sequence[Shape]) -> dict[sympy.Symbol, Reading]:
    """Where each size that the shapes determine can be read: n off an axis n, or 2 n, or n + p
    once p is known. Plain axes are preferred."""
    axes = [
        (position, axis, length)
        for position, shape in enumerate(shapes)
        for axis, length in enumerate(shape)
    ]
    axes.sort(key=lambda entry: not entry[2].is_Symbol)
    found: dict[sympy.Symbol, Reading] = {}
    count = -1
    while count < len(found):
        count = len(found)
        for position, axis, length in axes:
            unknown = [symbol for symbol in length.free_symbols if symbol not in found]
            if len(unknown) == 1 and _linear(length, unknown[0]):
                factor = length.coeff(unknown[0], 1)
                value = sympy.expand(LENGTH - length.coeff(unknown[0], 0)) / factor
                exact = factor == 1
                value = value if exact else sympy.floor(value)
                found[unknown[0]] = Reading(position, axis, value, exact)
    return found


def _linear(length: sympy.Expr, size: sympy.Basic) -> bool:
    return not length.has(sympy.Min) and sympy.Poly(length, size).degree() == 1
