"""Panels of columns in LU and Cholesky factorisations.

BLAS's trsm with as few columns as a panel has would take most of the time, and waits for threads
however small the matrix is: a product with the inverse of the panel's triangle takes a fifth of it.
"""

# mypy: allow-untyped-defs, disable-error-code=call-arg

from ..internals.functions import compiled
from .blas import gemm_part

NARROW_PANEL, MIDDLE_PANEL, WIDE_PANEL = 8, 16, 32
"""Number of columns of a panel."""
MAX_NARROW_PANEL_ROWS, MAX_MIDDLE_PANEL_ROWS = 128, 256
"""Largest matrices that are factored by narrow panels, and by panels of middle width."""


@compiled()
def solve_panel(a, start, unit, inverses, solved):
    """solved[start + width:] = B inv(T), for a panel of `a` (n, n) that begins at row and column
    `start`: T is the upper triangle of its diagonal block, with ones on the diagonal if `unit`, B
    its rows below that block.

    inverses (n, width): its rows of the diagonal block become inv(T).
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
