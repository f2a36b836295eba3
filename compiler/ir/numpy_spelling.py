"""NumPy texts put together: how tightly each holds, axes in another order, factors, numbers."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import sympy

from derivatrix.compiler.ir import scalar_functions as scalars
from derivatrix.compiler.ir.nodes import Labels

ANY, SUM, PRODUCT, POWER, ATOM = range(5)
"""How tightly a text holds together, as in Python."""


def is_matmul(left: Labels, right: Labels, output: Sequence[int]) -> bool:
    """Whether `@` contracts two factors: over the last axis of one and the last but one of the
    other, or the only one; stacked axes first, in both or in one."""
    inner = right[-2:][0]
    if left[-1] != inner or inner in output:
        return False
    stack = max(left[:-2], right[:-2], key=len)
    stacked = all(own in ((), stack) for own in (left[:-2], right[:-2]))
    return stacked and (*stack, *left[-2:-1], *right[-2:][1:]) == tuple(output)


def arranged(text: str, places: Sequence[int | None]) -> str:
    """The axes of an array in another order, with new ones of length 1 where there is None."""
    kept = [place for place in places if place is not None]
    if kept == [1, 0]:
        text = f"{held(text, ATOM)}.T"
    elif kept != sorted(kept):
        text = f"np.transpose({text}, {tuple(kept)})"
    if len(kept) < len(places):
        shown = ", ".join("None" if place is None else ":" for place in places)
        text = f"{held(text, ATOM)}[{shown}]"
    return text


def scaled(number: sympy.Expr, texts: Sequence[str]) -> str:
    """A number times arrays."""
    over, under = sympy.fraction(number)
    sign = "-" if over.could_extract_minus_sign() else ""
    over = -over if sign else over
    factors = [number_text(over)] * (over != 1 or not texts) + list(texts)
    text = joined(factors)
    if sign or under != 1:
        text = sign + held(text, PRODUCT)
    return text if under == 1 else f"{text} / {held(number_text(under), POWER)}"


def number_text(number: sympy.Expr) -> str:
    return repr(float(number)) if number.is_Float else scalars.numpy_text(number)


def joined(factors: Sequence[str]) -> str:
    """The product of arrays, entry by entry."""
    first, *rest = factors
    return " * ".join([held(first, PRODUCT) if rest else first, *(held(f, POWER) for f in rest)])


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return True


LEVELS = {ast.Add: SUM, ast.Sub: SUM, ast.Pow: POWER}


def held(text: str, least: int) -> str:
    """The text, in parentheses unless it holds together as tightly as `least`."""
    tree = ast.parse(text, mode="eval").body
    match tree:
        case ast.BinOp():
            level = LEVELS.get(type(tree.op), PRODUCT)
        case ast.UnaryOp():
            level = PRODUCT
        case ast.Call() | ast.Name() | ast.Attribute() | ast.Subscript() | ast.Constant():
            level = ATOM
        case _:
            level = ANY
    if text.startswith("(") and _is_expression(text[1:-1]):
        level = ATOM
    return text if level >= least else f"({text})"
