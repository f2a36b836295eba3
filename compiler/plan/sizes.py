"""How large symbolic sizes are taken to be where a choice depends on them."""

from __future__ import annotations

from functools import cache

import sympy

SYMBOLIC = 100
BATCH = 1000
SMALL = 8


@cache
def nominal(size: sympy.Expr) -> float:
    """The size as a number: literal ones as they are, `batch` large, the others 100."""
    values = {
        symbol: sympy.Integer(BATCH if symbol.name == "batch" else SYMBOLIC)
        for symbol in size.free_symbols
        if isinstance(symbol, sympy.Symbol)
    }
    return float(size.xreplace(values))


def is_small(size: sympy.Expr) -> bool:
    """Whether loops beat a BLAS call along an axis of this size."""
    return bool(size.is_Integer and size <= SMALL)


def product(sizes: tuple[sympy.Expr, ...]) -> sympy.Expr:
    """The number of entries of an array of this shape."""
    return sympy.expand(sympy.Mul(*sizes))
