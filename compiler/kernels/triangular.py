"""Triangular systems by substitution; the other triangle is never read.

What solves and inverts takes matrices of which `triangular_invertible` is true.
"""

# mypy: allow-untyped-defs

import numpy as np

from derivatrix.compiler.kernels.base import (
    LEFT,
    LOWER,
    NO,
    RIGHT,
    TRANSPOSED,
    UNIT,
    UPPER,
    compiled,
)
from derivatrix.compiler.kernels.blas import blas_trsm, gemm

BLOCK = 32
"""Inverses of triangular matrices are made by so many rows at a time."""
SMALL = 8
"""Up to so many rows, loops take less time than a call of LAPACK or BLAS."""
PANEL = 64
"""So many unknowns are solved for at a time: BLAS's substitution is several times slower than its
products, which do the rest."""
FEW = 8
"""Fewer right-hand sides are solved for by one substitution."""


@compiled()
def triangular_invertible(a):
    """Whether no diagonal entry of a matrix of `a` (stack, n, n) is zero."""
    stack, n, _ = a.shape
    for s in range(stack):
        for i in range(n):
            if a[s, i, i] == 0:
                return False
    return True


@compiled()
def substitute_rows(a, b, s, lower, transposed, unit):
    """Replace each row x of b[s] (rows, n) by inv(T) x, or by inv(T)' x, with the triangle T of
    a[s]. unit: whether its diagonal is 1."""
    _, rows, n = b.shape
    for row in range(rows):
        for step in range(n):
            k = step if lower != transposed else n - 1 - step
            if not unit:
                b[s, row, k] /= a[s, k, k]
            x = b[s, row, k]
            start, stop = (k + 1, n) if lower != transposed else (0, k)
            for i in range(start, stop):
                b[s, row, i] -= (a[s, k, i] if transposed else a[s, i, k]) * x


@compiled()
def substitute_columns(a, b, s, lower, transposed, unit):
    """As `substitute_rows`, for each column of b[s] (n, columns)."""
    _, n, columns = b.shape
    for step in range(n):
        k = step if lower != transposed else n - 1 - step
        if not unit:
            for j in range(columns):
                b[s, k, j] /= a[s, k, k]
        start, stop = (k + 1, n) if lower != transposed else (0, k)
        for i in range(start, stop):
            factor = a[s, k, i] if transposed else a[s, i, k]
            for j in range(columns):
                b[s, i, j] -= factor * b[s, k, j]


@compiled()
def solve_rows(a, b, s, lower, transposed, unit):
    """As `substitute_rows`, for matrices of any size."""
    _, rows, n = b.shape
    if n <= SMALL:
        substitute_rows(a, b, s, lower, transposed, unit)
        return
    if rows == 0:
        return
    one = b.dtype.type(1)
    triangle = UPPER if lower else LOWER
    which = NO if transposed else TRANSPOSED
    diagonal = UNIT if unit else NO
    panel = n if rows < FEW else PANEL
    for step in range(0, n, panel):
        start, stop, done, end = next_panel(n, panel, step, lower != transposed)
        if done < end:
            known = b[s, :, done:end]
            factor = a[s, done:end, start:stop] if transposed else a[s, start:stop, done:end]
            gemm(-1.0, known, False, factor, not transposed, 1.0, b[s, :, start:stop])
        corner, rest = a[s, start:, start:], b[s, :, start:]
        blas_trsm((LEFT, triangle, which, diagonal, stop - start, rows, one, corner, n, rest, n))


@compiled()
def solve_columns(a, b, s, lower, transposed, unit):
    """As `substitute_columns`, for matrices of any size."""
    _, n, columns = b.shape
    if n <= SMALL:
        substitute_columns(a, b, s, lower, transposed, unit)
        return
    if columns == 0:
        return
    one = b.dtype.type(1)
    triangle = UPPER if lower else LOWER
    which = TRANSPOSED if transposed else NO
    diagonal = UNIT if unit else NO
    panel = n if columns < FEW else PANEL
    for step in range(0, n, panel):
        start, stop, done, end = next_panel(n, panel, step, lower != transposed)
        if done < end:
            known = b[s, done:end]
            factor = a[s, done:end, start:stop] if transposed else a[s, start:stop, done:end]
            gemm(-1.0, factor, transposed, known, False, 1.0, b[s, start:stop])
        corner, rest = a[s, start:, start:], b[s, start:]
        sizes = columns, stop - start
        blas_trsm((RIGHT, triangle, which, diagonal, *sizes, one, corner, n, rest, columns))


@compiled()
def next_panel(n, panel, step, forward):
    """Which unknowns are next when `step` of them are known, and which are known."""
    if forward:
        return step, step + panel if step + panel < n else n, 0, step
    return n - step - panel if step + panel < n else 0, n - step, n - step, n


@compiled()
def triangular_solve_rows(a, b, lower, transposed):
    """Replace each row x of `b` (stack, rows, n) by inv(A) x, or by inv(A)' x."""
    for s in range(len(b)):
        solve_rows(a, b, s, lower, transposed, False)


@compiled()
def triangular_solve_columns(a, b, lower, transposed):
    """Replace each column x of `b` (stack, n, columns) by inv(A) x, or by inv(A)' x."""
    for s in range(len(b)):
        solve_columns(a, b, s, lower, transposed, False)


@compiled()
def lower_inverse(lower, out):
    """out (n, n) = the inverse of the lower triangle of `lower`, zero above: with the rows before
    it inverted, a block row [A B] of it is [-inv(B) A X, inv(B)]."""
    n = lower.shape[0]
    for i in range(n):
        for j in range(n):
            out[i, j] = 0
    for start in range(0, n, BLOCK):
        stop = start + BLOCK if start + BLOCK < n else n
        for i in range(start, stop):
            reciprocal = 1 / lower[i, i]
            for k in range(start, i):
                factor = lower[i, k] * reciprocal
                for j in range(start, k + 1):
                    out[i, j] -= factor * out[k, j]
            out[i, i] = reciprocal
        if start > 0:
            product = np.empty((stop - start, start), out.dtype)
            before = out[:start, :start]
            gemm(1.0, lower[start:stop, :start], False, before, False, 0.0, product)
            inverse = out[start:stop, start:stop]
            gemm(-1.0, inverse, False, product, False, 0.0, out[start:stop, :start])


@compiled()
def triangular_inverse(a, out, lower):
    """out (stack, n, n) = the inverse of each matrix of `a`."""
    stack, n, _ = a.shape
    for s in range(stack):
        for i in range(n):
            for j in range(n):
                out[s, i, j] = i == j
    triangular_solve_columns(a, out, lower, False)


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
        negative = False
        for i in range(n):
            negative ^= a[s, i, i] < 0
        if negative and out[s] > -np.inf:
            out[s] = np.nan
