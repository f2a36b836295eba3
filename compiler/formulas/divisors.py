"""Negative powers as what a product is divided by."""

from __future__ import annotations

from derivatrix.compiler.formulas.tree import Number, Raise, Tree


def divisor(factor: Tree) -> Tree | None:
    """1 / factor, where the factor is a negative power."""
    if not isinstance(factor, Raise) or not isinstance(factor.exponent, Number):
        return None
    exponent = -factor.exponent.value
    if not exponent.is_positive:
        return None
    return factor.body if exponent == 1 else Raise(factor.axes, factor.body, Number(exponent))


def split_divisors(factors: tuple[Tree, ...]) -> tuple[list[Tree], list[Tree]]:
    """The factors of a product, and what it is divided by."""
    over = [factor for factor in factors if divisor(factor) is None]
    return over, [under for factor in factors if (under := divisor(factor)) is not None]
