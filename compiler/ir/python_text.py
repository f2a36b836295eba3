"""Arithmetic of sizes and loop indices as Python writes it."""

from collections.abc import Iterable
from functools import partialmethod

import sympy
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter


class _IndexPrinter(StrPrinter):
    """Prints integer arithmetic as Python. `multiplied`: powers as products; `extremes`: the texts
    of a maximum and a minimum."""

    def __init__(self, multiplied: bool, extremes: tuple[str, str]) -> None:
        super().__init__()
        self._multiplied, self._extremes = multiplied, extremes

    def _print_Pow(self, expression: sympy.Pow, rational: bool = False) -> str:
        base, exponent = expression.args
        if self._multiplied and exponent.is_Integer and exponent > 1:
            return f"({'*'.join([self.parenthesize(base, PRECEDENCE['Pow'])] * int(exponent))})"
        return str(super()._print_Pow(expression, rational))

    def _print_Add(self, expression: sympy.Add, order: str | None = None) -> str:
        return self._quotient(expression) or super()._print_Add(expression, order)

    def _print_Mul(self, expression: sympy.Mul) -> str:
        return self._quotient(expression) or super()._print_Mul(expression)

    def _quotient(self, expression: sympy.Expr) -> str:
        """Print an integer with fractions in it, as n (n + 1)/2, with one division; "" without
        fractions. Terms that are integers are added to the quotient, so that loops over them take
        even steps."""
        terms = sympy.Add.make_args(expression)
        integers = [term for term in terms if sympy.together(term).as_numer_denom()[1] == 1]
        if len(integers) == len(terms):
            return ""
        fraction = sympy.together(expression - sympy.Add(*integers))
        numerator, denominator = fraction.as_numer_denom()
        text = f"(({self._print(sympy.expand(numerator))}) // {self._print(denominator)})"
        return " + ".join(
            [text, *(self.parenthesize(term, PRECEDENCE["Add"]) for term in integers)]
        )

    def _print_AppliedUndef(self, expression: sympy.core.function.AppliedUndef) -> str:
        return f"{expression.func.__name__}[{self._print(expression.args[0])}]"

    def _print_floor(self, expression: sympy.floor) -> str:
        numerator, denominator = expression.args[0].as_numer_denom()
        return f"(({self._print(numerator)}) // {self._print(denominator)})"

    def _print_ceiling(self, expression: sympy.ceiling) -> str:
        numerator, denominator = expression.args[0].as_numer_denom()
        return f"(-((-({self._print(numerator)})) // {self._print(denominator)}))"

    def _print_Mod(self, expression: sympy.Mod) -> str:
        dividend, divisor = expression.args
        return f"(({self._print(dividend)}) % {self._print(divisor)})"

    def _print_Wrapped(self, expression: sympy.Expr) -> str:
        number, size = map(self._print, expression.args)
        return f"({number} % {self._extremes[0].format(f'{size}, 1')})"

    def _print_Relational(self, expression: sympy.core.relational.Relational) -> str:
        return f"{self._print(expression.lhs)} {expression.rel_op} {self._print(expression.rhs)}"

    def _print_And(self, expression: sympy.And) -> str:
        parts = sorted(expression.args, key=sympy.default_sort_key)
        return " and ".join(self._print(part) for part in parts)

    def _extreme(self, position: int, expression: sympy.Expr) -> str:
        arguments = sorted(expression.args, key=sympy.default_sort_key)
        return self._extremes[position].format(", ".join(map(self._print, arguments)))

    _print_Max = partialmethod(_extreme, 0)
    _print_Min = partialmethod(_extreme, 1)


NUMPY_EXTREMES = ("np.max([{}])", "np.min([{}])")


def index(
    expression: sympy.Basic,
    multiplied: bool = False,
    extremes: tuple[str, str] = ("max({})", "min({})"),
) -> str:
    """Print arithmetic of sizes and loop indices, or a condition on them. `multiplied`: powers as
    products; Numba computes powers in floating point on CUDA devices. `extremes`: the texts of a
    maximum and a minimum of arguments."""
    return str(_IndexPrinter(multiplied, extremes).doprint(expression))


def tuple_text(parts: Iterable[str]) -> str:
    """Print a tuple of texts."""
    texts = list(parts)
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
