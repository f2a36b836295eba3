"""Numbers assumed for symbolic sizes where a choice depends on them."""

from __future__ import annotations

from functools import cache

import sympy

from derivatrix.compiler.ir.dimensions import BATCH

NOMINAL_SIZE = sympy.Integer(100)
"""The number assumed for a symbolic size."""
NOMINAL_SAMPLES = sympy.Integer(1000)
"""The number of samples assumed for a batch."""
MAX_LOOP_SIZE = 8
"""The largest size of an axis along which loops are faster than BLAS."""
LARGE_SIZE = sympy.Integer(3000)
"""The number assumed for every size when the planner decides whether threads share the work."""


@cache
def nominal(size: sympy.Expr) -> float:
    """Replace the symbols of a size by `NOMINAL_SAMPLES` for the batch, else by `NOMINAL_SIZE`."""
    values = {
        symbol: NOMINAL_SAMPLES if symbol == BATCH else NOMINAL_SIZE for symbol in size.free_symbols
    }
    return float(size.xreplace(values))


def at_large(polynomial: sympy.Expr) -> sympy.Expr:
    """Replace all sizes in a polynomial by `LARGE_SIZE`."""
    return polynomial.xreplace(dict.fromkeys(polynomial.free_symbols, LARGE_SIZE))


def is_small(size: sympy.Expr) -> bool:
    """Return whether loops beat a BLAS call along an axis of this size."""
    return bool(size.is_Integer and size <= MAX_LOOP_SIZE)


def product(sizes: tuple[sympy.Expr, ...]) -> sympy.Expr:
    """Count the entries of an array of this shape."""
    return sympy.expand(sympy.Mul(*sizes))
