"""Stein's equation X - A X B = Q, by real Schur forms of A and B and substitution (Kitagawa 1977,
Barraud 1977)."""

# mypy: allow-untyped-defs

import numpy as np

from ..internals.arithmetic import epsilon
from ..internals.functions import compiled
from ..internals.memory import empty
from .blas import gemm
from .copies import copy_matrices
from .lu import lu_factor, lu_solve_each_row
from .sylvester import schur


@compiled(counted=True)
def solve_block(a, b, block, precision):
    """Replace a block by the X with X - a X b = block, for a and b of one or two rows. False where
    an eigenvalue of a is the inverse of one of b, up to rounding errors."""
    rows, columns = block.shape
    size = rows * columns
    system = empty((1, size, size), np.float64)
    unknown = empty((1, 1, size), np.float64)
    pivots = empty((1, size), np.int32)
    largest = 1.0
    for i in range(size):
        unknown[0, 0, i] = block[i // columns, i % columns]
        for j in range(size):
            product = a[i // columns, j // columns] * b[j % columns, i % columns]
            system[0, i, j] = (1.0 if i == j else 0.0) - product
            largest = max(largest, abs(product))
    lu_factor(system, pivots)
    for i in range(size):
        if not abs(system[0, i, i]) > 4 * precision * largest:
            return False
    lu_solve_each_row(system, pivots, unknown, False)
    for i in range(size):
        block[i // columns, i % columns] = unknown[0, 0, i]
    return True


@compiled(counted=True)
def lower_stein(a, b, c, precision):
    """Replace c (n, m) by the X with X - a X b = c, for lower quasi-triangular a (n, n) and
    b (m, m), block by block: columns from the last, rows from the first."""
    n, m = c.shape
    product = empty((n, 2), np.float64)  # X times the current columns of b, as far as X is computed
    right = m
    while right > 0:
        left = right - 2 if right > 1 and b[right - 2, right - 1] != 0 else right - 1
        for i in range(n):
            for j in range(left, right):
                total = 0.0
                for k in range(right, m):
                    total += c[i, k] * b[k, j]
                product[i, j - left] = total
        top = 0
        while top < n:
            bottom = top + 2 if top + 1 < n and a[top, top + 1] != 0 else top + 1
            for i in range(top, bottom):
                for j in range(left, right):
                    for k in range(bottom):
                        c[i, j] += a[i, k] * product[k, j - left]
            block = c[top:bottom, left:right]
            a_block, b_block = a[top:bottom, top:bottom], b[left:right, left:right]
            if not solve_block(a_block, b_block, block, precision):
                return False
            for i in range(top, bottom):
                for j in range(left, right):
                    for k in range(left, right):
                        product[i, j - left] += c[i, k] * b[k, j]
            top = bottom
        right = left
    return True


@compiled(counted=True)
def stein(a, b, q, out):
    """out (stack, n, m) = the X with X - A X B = Q. False where an eigenvalue of A is the inverse
    of one of B, or no Schur form is found."""
    stack, n, m = q.shape
    a_form = empty((stack, n, n), np.float64)
    a_vectors = empty((stack, n, n), np.float64)
    b_form = empty((stack, m, m), np.float64)
    b_vectors = empty((stack, m, m), np.float64)
    if not schur(a, a_form, a_vectors) or not schur(b, b_form, b_vectors):
        return False
    half = empty((n, m), np.float64)
    right = q.astype(np.float64)
    for s in range(stack):
        gemm(1.0, a_vectors[s], False, right[s], False, 0.0, half)
        gemm(1.0, half, False, b_vectors[s], True, 0.0, right[s])
        if not lower_stein(a_form[s], b_form[s], right[s], epsilon(out)):
            return False
        gemm(1.0, a_vectors[s], True, right[s], False, 0.0, half)
        gemm(1.0, half, False, b_vectors[s], False, 0.0, right[s])
    copy_matrices(right, out, False)
    return True


@compiled(counted=True)
def discrete_lyapunov(a, q, out):
    """out (stack, n, n) = the X with A X A' - X + Q = 0. False where the product of two
    eigenvalues of A is 1, or no Schur form is found."""
    transposed = empty(a.shape, a.dtype)
    copy_matrices(a, transposed, True)
    return stein(a, transposed, q, out)
