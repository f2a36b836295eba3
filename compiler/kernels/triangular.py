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
    UPPER,
    compiled,
)
from derivatrix.compiler.kernels.blas import blas_trsm, gemm

BLOCK = 32
"""Inverses of triangular matrices are made by so many rows at a time."""


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
def triangular_solve_rows(a, b, lower, transposed):
    """Replace each row x of `b` (stack, rows, n) by inv(A) x, or by inv(A)' x."""
    stack, rows, n = b.shape
    one = b.dtype.type(1)
    triangle = UPPER if lower else LOWER
    which = NO if transposed else TRANSPOSED
    for s in range(stack):
        if n > 0 and rows > 0:
            blas_trsm((LEFT, triangle, which, NO, n, rows, one, a[s], n, b[s], n))


@compiled()
def triangular_solve_columns(a, b, lower, transposed):
    """Replace each column x of `b` (stack, n, columns) by inv(A) x, or by inv(A)' x."""
    stack, n, columns = b.shape
    one = b.dtype.type(1)
    triangle = UPPER if lower else LOWER
    which = TRANSPOSED if transposed else NO
    for s in range(stack):
        if n > 0 and columns > 0:
            blas_trsm((RIGHT, triangle, which, NO, columns, n, one, a[s], n, b[s], columns))


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
