"""Triangular matrices: systems, inverses and determinants. The other triangle is never read.

Functions that solve or invert require matrices that `triangular_invertible` accepts.
"""

# mypy: allow-untyped-defs

import numpy as np

from ..internals.functions import compiled
from .blas import LOWER, NO, TRANSPOSED, UPPER, gemm_part
from .substitution import substitute

INVERSE_BLOCK_ROWS = 32
"""Number of rows of an inverse that are computed at a time: 16 or 64 take up to 1.4 times as long
for 50 to 500 rows."""


@compiled()
def triangular_invertible(a):
    """Check that no diagonal entry of a matrix of `a` (stack, n, n) is zero."""
    stack, n, _ = a.shape
    for s in range(stack):
        for i in range(n):
            if a[s, i, i] == 0:
                return False
    return True


@compiled()
def triangular_solve_rows(a, b, lower, transposed):
    """Replace each row x of `b` (stack, rows, n) by inv(A) x, or by inv(A)' x."""
    triangle, transposition = LOWER if lower else UPPER, TRANSPOSED if transposed else NO
    for s in range(len(b)):
        substitute(a[s], b[s], True, triangle, transposition, NO)


@compiled()
def triangular_solve_columns(a, b, lower, transposed):
    """Replace each column x of `b` (stack, n, columns) by inv(A) x, or by inv(A)' x."""
    triangle, transposition = LOWER if lower else UPPER, TRANSPOSED if transposed else NO
    for s in range(len(b)):
        substitute(a[s], b[s], False, triangle, transposition, NO)


@compiled()
def triangular_inverse(a, out, lower):
    """out (stack, n, n) = the inverse of each matrix of `a`, zero in the other triangle.

    An upper triangular matrix is transposed. With the rows above inverted to X, a block row [A B]
    of the inverse becomes [P X, inv(B)] with P = -inv(B) A; until then P' stands above the
    diagonal."""
    stack, n, _ = a.shape
    for s in range(stack):
        x = out[s]
        x[:] = 0
        for start in range(0, n, INVERSE_BLOCK_ROWS):
            stop = min(start + INVERSE_BLOCK_ROWS, n)
            for i in range(start, stop):
                reciprocal = 1 / a[s, i, i]
                for k in range(start, i):
                    factor = (a[s, i, k] if lower else a[s, k, i]) * reciprocal
                    for j in range(start, k + 1):
                        x[i, j] -= factor * x[k, j]
                x[i, i] = reciprocal
            if start > 0:
                transfer_ranges = (0, start, start, stop, start, stop)
                gemm_part(-1.0, a[s], lower, x, True, 0.0, x, transfer_ranges)
                block_row_ranges = (start, stop, 0, start, 0, start)
                gemm_part(1.0, x, True, x, False, 0.0, x, block_row_ranges)
                for i in range(start):
                    for j in range(start, stop):
                        x[i, j] = 0
        if not lower:
            for i in range(n):
                for j in range(i):
                    x[j, i], x[i, j] = x[i, j], 0


@compiled()
def triangular_det(a, out):
    """out (stack,) = the determinant of each triangular matrix of `a`."""
    stack, n, _ = a.shape
    for s in range(stack):
        product = out.dtype.type(1)
        for i in range(n):
            product *= a[s, i, i]
        out[s] = product


@compiled()
def triangular_logabsdet(a, out):
    """out (stack,) = log of the absolute value of the determinant."""
    stack, n, _ = a.shape
    for s in range(stack):
        total = out.dtype.type(0)
        for i in range(n):
            total += np.log(abs(a[s, i, i]))
        out[s] = total


@compiled()
def triangular_logdet(a, out):
    """out (stack,) = log of the determinant: -inf where it is zero, nan where it is negative."""
    triangular_logabsdet(a, out)
    stack, n, _ = a.shape
    for s in range(stack):
        is_negative = False
        for i in range(n):
            is_negative ^= a[s, i, i] < 0
        if is_negative and out[s] > -np.inf:
            out[s] = np.nan
