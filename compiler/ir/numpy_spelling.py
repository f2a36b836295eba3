"""NumPy texts: precedence and parentheses, axes in another order, products, numbers."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import sympy

from derivatrix.compiler.ir import scalar_functions as scalars
from derivatrix.compiler.ir.nodes import Labels
from derivatrix.runtime.syntax import parse_python

TERNARY, SUM, PRODUCT, POWER, ATOM = range(5)
"""The precedence of a text in Python, weakest first."""


def is_matmul(a: Labels, b: Labels, output: Sequence[int]) -> bool:
    """Return whether `@` contracts two factors: over the last axis of `a` and the last but one, or
    the only one, of `b`. Stacked axes come first, in both factors or in one."""
    inner = b[-2:][0]
    if a[-1] != inner or inner in output:
        return False
    stack = max(a[:-2], b[:-2], key=len)
    stacks_agree = a[:-2] in ((), stack) and b[:-2] in ((), stack)
    return stacks_agree and (*stack, *a[-2:-1], *b[-2:][1:]) == tuple(output)


def arranged(text: str, axes: Sequence[int | None]) -> str:
    """Permute the axes of an array, and add axes of length 1 where `axes` has None."""
    order = [axis for axis in axes if axis is not None]
    if order == [1, 0]:
        text = f"{parenthesised(text, ATOM)}.T"
    elif order != sorted(order):
        text = f"np.transpose({text}, {tuple(order)})"
    if len(order) < len(axes):
        indices = ", ".join("None" if axis is None else ":" for axis in axes)
        text = f"{parenthesised(text, ATOM)}[{indices}]"
    return text


def scaled(number: sympy.Expr, texts: Sequence[str]) -> str:
    """Multiply arrays by a number."""
    numerator, denominator = sympy.fraction(number)
    sign = "-" if numerator.could_extract_minus_sign() else ""
    numerator = -numerator if sign else numerator
    factors = [number_text(numerator)] * (numerator != 1 or not texts) + list(texts)
    text = product_text(factors)
    if sign or denominator != 1:
        text = sign + parenthesised(text, PRODUCT)
    return (
        text if denominator == 1 else f"{text} / {parenthesised(number_text(denominator), POWER)}"
    )


def number_text(number: sympy.Expr) -> str:
    return repr(float(number)) if number.is_Float else scalars.numpy_text(number)


def product_text(factors: Sequence[str]) -> str:
    """Multiply arrays entry by entry."""
    if len(factors) == 1:
        return factors[0]
    # the first factor may be a product: multiplication associates to the left
    parts = [parenthesised(factors[0], PRODUCT), *(parenthesised(f, POWER) for f in factors[1:])]
    return " * ".join(parts)


def _is_expression(text: str) -> bool:
    try:
        parse_python(text, mode="eval")
    except SyntaxError:
        return False
    return True


OPERATOR_PRECEDENCE = {ast.Add: SUM, ast.Sub: SUM, ast.Pow: POWER}


def parenthesised(text: str, precedence: int) -> str:
    """Put the text in parentheses unless its precedence is at least `precedence`."""
    tree = parse_python(text, mode="eval").body
    match tree:
        case ast.BinOp():
            level = OPERATOR_PRECEDENCE.get(type(tree.op), PRODUCT)
        case ast.UnaryOp():
            level = PRODUCT
        case ast.Call() | ast.Name() | ast.Attribute() | ast.Subscript() | ast.Constant():
            level = ATOM
        case _:
            level = TERNARY
    if text.startswith("(") and _is_expression(text[1:-1]):
        level = ATOM
    return text if level >= precedence else f"({text})"
