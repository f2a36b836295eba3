"""Numbers assumed for symbolic sizes where a choice depends on them."""

from __future__ import annotations

from functools import cache

import sympy

SYMBOLIC = 100
"""The number assumed for a symbolic size."""
BATCH = 1000
"""The number of samples assumed for a batch."""
SMALL = 8
"""The largest size for which loops are faster than BLAS."""
LARGE = sympy.Integer(3000)
"""The number assumed for every size when a kernel decides whether threads share its work."""


@cache
def nominal(size: sympy.Expr) -> float:
    """Replace the symbols of a size by numbers: `batch` by 1000, others by 100."""
    values = {
        symbol: sympy.Integer(BATCH if symbol.name == "batch" else SYMBOLIC)
        for symbol in size.free_symbols
        if isinstance(symbol, sympy.Symbol)
    }
    return float(size.xreplace(values))


def at_large(polynomial: sympy.Expr) -> sympy.Expr:
    """Replace all sizes in a polynomial by `LARGE`."""
    return polynomial.xreplace(dict.fromkeys(polynomial.free_symbols, LARGE))


def is_small(size: sympy.Expr) -> bool:
    """Return whether loops beat a BLAS call along an axis of this size."""
    return bool(size.is_Integer and size <= SMALL)


def product(sizes: tuple[sympy.Expr, ...]) -> sympy.Expr:
    """Count the entries of an array of this shape."""
    return sympy.expand(sympy.Mul(*sizes))
