"""Factorisations by panels of columns, as LU and Cholesky have them.

BLAS's substitution for as few rows as a panel has would take most of the time, and wait for threads
however small the matrix is: a product with the inverse of the panel's triangle takes a fifth of it.
"""

# mypy: allow-untyped-defs, disable-error-code=call-arg

from ..internals.functions import compiled
from .blas import gemm_part

NARROW_PANEL, MIDDLE_PANEL, WIDE_PANEL = 8, 16, 32
"""How many columns a panel has."""
FEW, SEVERAL_HUNDRED = 128, 256
"""The most rows of a matrix that is factored by narrow panels, and by those of middle width."""


@compiled()
def solve_panel(a, start, unit, inverses, solved):
    """B inv(T), in the rows of `solved` (n, width) that those of B have in `a`, (n, n).

    T: the upper triangle of a panel's rows and columns, from start on, with ones on the diagonal if
    `unit`; B: all rows below it. inv(T) is put into the same rows of `inverses`, (n, width).
    """
    n, width = inverses.shape
    stop, one = start + width, a.dtype.type(1)
    for i in range(width):
        for j in range(width):
            inverses[start + i, j] = 0
        inverses[start + i, i] = 1
    for k in range(width - 1, -1, -1):
        if not unit:
            reciprocal = one / a[start + k, start + k]
            for j in range(k, width):
                inverses[start + k, j] *= reciprocal
        for i in range(k):
            factor = a[start + i, start + k]
            for j in range(k, width):
                inverses[start + i, j] -= factor * inverses[start + k, j]
    below = stop, n, 0, width, start, stop
    gemm_part(1.0, a, False, inverses, False, 0.0, solved, below)
