"""NumPy texts: precedence and parentheses, axes in another order, products, scalar expressions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partialmethod, reduce
from typing import NamedTuple

import sympy
from sympy.printing.numpy import SciPyPrinter
from sympy.printing.precedence import PRECEDENCE

from derivatrix.compiler.ir.nodes import Labels

TERNARY, SUM, PRODUCT, POWER, ATOM = range(5)
"""The precedence of a text in Python, weakest first."""

EINSUM_LETTERS = "ijklmnopqrstuvwxyzabcdefghIJKLMNOPQRSTUVWXYZABCDEFGH"
"""Letters of axes in `np.einsum`, in the order of their use."""


def is_matmul(a: Labels, b: Labels, output: Sequence[int]) -> bool:
    """Return whether `@` contracts two factors: over the last axis of `a` and the last but one, or
    the only one, of `b`. Stacked axes come first, in both factors or in one."""
    inner = b[-2:][0]
    if a[-1] != inner or inner in output:
        return False
    stack = max(a[:-2], b[:-2], key=len)
    stacks_agree = a[:-2] in ((), stack) and b[:-2] in ((), stack)
    return stacks_agree and (*stack, *a[-2:-1], *b[-2:][1:]) == tuple(output)


class Text(NamedTuple):
    """The text of an array or number: a sign, "-" or "", and the rest. level: the precedence of the
    whole. exact: whether it has the shape of its node; else it broadcasts to it."""

    unsigned: str
    level: int = ATOM
    sign: str = ""
    exact: bool = True

    def __str__(self) -> str:
        return f"{self.sign}{self.unsigned}"

    def within(self, level: int) -> str:
        """Return the text as an operand of an operator, whose operands have at least this level."""
        return str(self) if self.level >= level else f"({self})"


def arranged(array: Text, axes: Sequence[int | None]) -> Text:
    """Permute the axes of an array, and add axes of length 1 where `axes` has None."""
    order = [axis for axis in axes if axis is not None]
    if axes and not order:
        return Text(f"np.reshape({array}, {(1,) * len(axes)})")  # a number has no indices
    if order == [1, 0]:
        array = Text(f"{array.within(ATOM)}.T")
    elif order != sorted(order):
        array = Text(f"np.transpose({array}, {tuple(order)})")
    if len(order) < len(axes):
        indices = ", ".join("None" if axis is None else ":" for axis in axes)
        array = Text(f"{array.within(ATOM)}[{indices}]")
    return array


def scaled(number: sympy.Expr, factors: Sequence[Text]) -> Text:
    """Multiply arrays by a number."""
    numerator, denominator = sympy.fraction(number)
    sign = "-" if numerator.could_extract_minus_sign() else ""
    numerator = -numerator if sign else numerator
    product = multiplied([number_text(numerator)] * (numerator != 1 or not factors) + [*factors])
    if not sign and denominator == 1:
        return product
    text = product.within(PRODUCT)
    if denominator != 1:
        text = f"{text} / {number_text(denominator).within(POWER)}"
    return Text(text, PRODUCT, sign)


def number_text(number: sympy.Expr) -> Text:
    text = repr(float(number)) if number.is_Float else str(scalar_text(number))
    return Text(text, expression_level(number))


def multiplied(factors: Sequence[Text]) -> Text:
    """Multiply arrays entry by entry."""
    if len(factors) == 1:
        return factors[0]
    leading, *further_factors = factors
    sign = leading.sign if leading.level >= PRODUCT else ""
    # the first factor may be a product: multiplication associates to the left
    start = leading._replace(sign="").within(PRODUCT) if sign else leading.within(PRODUCT)
    return Text(
        " * ".join([start, *(factor.within(POWER) for factor in further_factors)]), PRODUCT, sign
    )


def sum_text(terms: Sequence[Text]) -> Text:
    """Add arrays."""
    texts = []
    for position, term in enumerate(terms):
        is_open = term.level >= (PRODUCT if position else SUM)
        sign = (is_open and term.sign) or "+"
        texts += [sign, term.unsigned if is_open else f"({term})"]
    sign = texts[0].removeprefix("+")
    return Text(" ".join(texts[1:]), SUM, sign)


def expression_level(expression: sympy.Expr) -> int:
    """Return the precedence of the text of an expression of numbers, as NumPy has it."""
    match expression:
        case sympy.Add():
            return SUM
        case sympy.Mul() | sympy.Mod():
            return PRODUCT
        case sympy.Pow():
            return {sympy.S.Half: ATOM, -sympy.S.Half: PRODUCT}.get(expression.exp, POWER)
        case sympy.S.NaN:  # has no order
            return ATOM
        case sympy.Number():
            return ATOM if expression >= 0 and getattr(expression, "q", 1) == 1 else PRODUCT
    return ATOM


class _ScalarPrinter(SciPyPrinter):
    """SymPy's NumPy printer, with `np` for `numpy`, maxima that broadcast, and the texts of
    operands for symbols. uses: how often it has written each of these symbols."""

    def __init__(self, operands: Mapping[sympy.Symbol, Text]) -> None:
        super().__init__({"fully_qualified_modules": True, "allow_unknown_functions": False})
        self.operands = operands
        self.uses: Counter[sympy.Symbol] = Counter()

    def _module_format(self, fqn: str, register: bool = True) -> str:
        module, _, name = fqn.rpartition(".")
        return f"np.{name}" if module == "numpy" else str(super()._module_format(fqn, register))

    def parenthesize(self, item: sympy.Basic, level: int, strict: bool = False) -> str:
        operand = self.operands.get(item)
        if operand is None:
            return str(super().parenthesize(item, level, strict))
        return self._print(item) if operand.level == ATOM else f"({self._print(item)})"

    def _print_Symbol(self, symbol: sympy.Symbol) -> str:
        if symbol not in self.operands:
            return str(super()._print_Symbol(symbol))
        self.uses[symbol] += 1
        return str(self.operands[symbol])

    def _print_Add(self, expression: sympy.Add, order: str | None = None) -> str:
        terms = []
        for term in self._as_ordered_terms(expression, order=order):
            is_negative = term.as_coeff_Mul()[0].is_negative
            text = self.parenthesize(-term if is_negative else term, PRECEDENCE["Add"])
            terms.append(Text(text, PRODUCT, "-" if is_negative else ""))
        return str(sum_text(terms))

    def _print_Abs(self, expression: sympy.Abs) -> str:
        return f"np.abs({self._print(expression.args[0])})"

    def _print_polygamma(self, expression: sympy.polygamma) -> str:
        if expression.args[0] == 0:
            return f"scipy.special.digamma({self._print(expression.args[1])})"
        return self._special(expression)

    def _special(self, expression: sympy.Function) -> str:
        """Print a function that SciPy calls as SymPy does."""
        arguments = ", ".join(map(self._print, expression.args))
        return f"scipy.special.{type(expression).__name__}({arguments})"

    _print_zeta = _print_erfinv = _special

    def _fold(self, name: str, expression: sympy.Expr) -> str:
        return reduce(lambda x, y: f"{name}({x}, {y})", map(self._print, expression.args))

    _print_Max = partialmethod(_fold, "np.maximum")
    _print_Min = partialmethod(_fold, "np.minimum")


def scalar_text(
    expression: sympy.Expr, operands: Mapping[sympy.Symbol, Text] | None = None
) -> Text:
    """Print a scalar expression with `np` and `scipy` in scope. operands: texts of symbols."""
    text = _ScalarPrinter(operands or {}).doprint(expression)
    level = expression_level(expression)
    if operands and expression in operands:
        level = operands[expression].level
    return Text(text, level)


def count_uses(expression: sympy.Expr, symbols: Sequence[sympy.Symbol]) -> Counter[sympy.Symbol]:
    """Count how often the text of an expression contains the text of each symbol."""
    printer = _ScalarPrinter({symbol: Text(symbol.name) for symbol in symbols})
    printer.doprint(expression)
    return printer.uses
