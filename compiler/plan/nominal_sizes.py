"""Numbers assumed for symbolic sizes where a choice depends on them."""

from __future__ import annotations

from functools import cache

import sympy

SYMBOLIC = 100
"""The number assumed for a symbolic size."""
BATCH = 1000
"""The number of samples assumed for a batch."""
SMALL = 8
"""The largest size for which loops beat BLAS."""
LARGE = sympy.Integer(3000)
"""The sizes at which it is decided whether threads gain from sharing work."""


@cache
def nominal(size: sympy.Expr) -> float:
    """The size as a number: literal ones as they are, `batch` large, the others 100."""
    values = {
        symbol: sympy.Integer(BATCH if symbol.name == "batch" else SYMBOLIC)
        for symbol in size.free_symbols
        if isinstance(symbol, sympy.Symbol)
    }
    return float(size.xreplace(values))


def at_large(polynomial: sympy.Expr) -> sympy.Expr:
    """A polynomial where all sizes are large."""
    return polynomial.xreplace(dict.fromkeys(polynomial.free_symbols, LARGE))


def is_small(size: sympy.Expr) -> bool:
    """Return whether loops beat a BLAS call along an axis of this size."""
    return bool(size.is_Integer and size <= SMALL)


def product(sizes: tuple[sympy.Expr, ...]) -> sympy.Expr:
    """The number of entries of an array of this shape."""
    return sympy.expand(sympy.Mul(*sizes))
