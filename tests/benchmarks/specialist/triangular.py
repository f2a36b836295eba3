"""Cholesky factors and what is solved with them, by blocks of rows: products of blocks for all but
the blocks on the diagonal, whose inverses are kept. OpenBLAS's own solvers start threads for
matrices of ten rows, and are slower up to a few hundred.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np

from tests.benchmarks.specialist.compiled import kernel
from tests.benchmarks.specialist.linear_algebra import call, mirror


@kernel
def step_of(n):
    """Rows of a block."""
    return 16 if n < 80 else 32


@kernel
def factor_block(A, W):
    """The factor of a block in place of its lower triangle, and the factor's inverse."""
    n = len(A)
    for i in range(n):
        row = A[i]
        W[i] = 0.0
        for j in range(i):
            other, total = A[j], row[j]
            for k in range(j):
                total -= row[k] * other[k]
            row[j] = total * W[j, j]
        total = row[i]
        for k in range(i):
            total -= row[k] * row[k]
        row[i] = np.sqrt(total)
        scale = 1.0 / row[i]
        inverse = W[i]
        inverse[i] = scale
        for k in range(i):
            factor, above = -row[k] * scale, W[k]
            for j in range(k + 1):
                inverse[j] += factor * above[j]


@kernel
def copy(source, target, rows, columns):
    for i in range(rows):
        for j in range(columns):
            target[i, j] = source[i, j]


@kernel
def factorise(A):
    """Replace the lower triangle of A by its Cholesky factor. Returns the inverses of the blocks
    on the diagonal, one below the other."""
    n = len(A)
    step = step_of(n)
    inverses, panel = np.empty((n, step)), np.empty((n, step))
    for top in range(0, n, step):
        bottom = min(n, top + step)
        width, below = bottom - top, n - bottom
        if top:
            call(
                "gemm TN",
                (width, n - top, top, -1.0, A[top:], n, A[top:], n, 1.0, A[top:, top:], n),
            )
        W = inverses[top:]
        factor_block(A[top:bottom, top:], W)
        if below:
            copy(A[bottom:, top:], panel, below, width)
            call(
                "gemm TN",
                (width, below, width, 1.0, W, step, panel, step, 0.0, A[bottom:, top:], n),
            )
    return inverses


@kernel
def solve(L, inverses, B, half):
    """Set B to L⁻¹ B, or of a symmetric result what is not below the diagonal."""
    n, columns = B.shape
    step = inverses.shape[1]
    rows = np.empty((step, columns))
    for top in range(0, n, step):
        bottom = min(n, top + step)
        height, left = bottom - top, top if half else 0
        width = columns - left
        part = B[top:, left:]
        if top:
            above, panel = B[:, left:], L[top:]
            call(
                "gemm NN",
                (width, height, top, -1.0, above, columns, panel, n, 1.0, part, columns),
            )
        copy(part, rows, height, width)
        W = inverses[top:]
        call(
            "gemm NN",
            (width, height, height, 1.0, rows, columns, W, step, 0.0, part, columns),
        )


@kernel
def solve_transposed(L, inverses, B, half):
    """Set B to L⁻ᵀ B, or of a symmetric result what is not above the diagonal."""
    n, columns = B.shape
    step = inverses.shape[1]
    rows = np.empty((step, columns))
    for top in range((n - 1) // step * step, -1, -step):
        bottom = min(n, top + step)
        height, width = bottom - top, bottom if half else columns
        below, part = n - bottom, B[top:]
        if below:
            other, panel = B[bottom:], L[bottom:, top:]
            call(
                "gemm NT",
                (width, height, below, -1.0, other, columns, panel, n, 1.0, part, columns),
            )
        copy(part, rows, height, width)
        W = inverses[top:]
        call(
            "gemm NT",
            (width, height, height, 1.0, rows, columns, W, step, 0.0, part, columns),
        )


@kernel
def lower_square(W, out):
    """Set out to Wᵀ W for a lower triangle W: of two halves of the rows, the blocks that are not
    above the diagonal, with those rows of W that are not zero there."""
    n = len(W)
    half = n // 2 if n >= 64 else 0
    if half:
        call("gemm NT", (half, half, n, 1.0, W, n, W, n, 0.0, out, n))
    rows, below, part = n - half, W[half:], out[half:]
    call("gemm NT", (n, rows, rows, 1.0, below, n, below[:, half:], n, 0.0, part, n))
    if half:
        mirror(out)


@kernel
def add_symmetric(A, B, out):
    """Add A B, which is symmetric, to out: of two halves of the rows what is not above the
    diagonal."""
    n = len(A)
    half = n // 2 if n >= 64 else 0
    if half:
        call("gemm NN", (half, half, n, 1.0, B, n, A, n, 1.0, out, n))
    call("gemm NN", (n, n - half, n, 1.0, B, n, A[half:], n, 1.0, out[half:], n))
    if half:
        mirror(out)


@kernel
def transpose(A, out):
    """Transpose in blocks that stay in the cache."""
    n = len(A)
    for top in range(0, n, 16):
        for left in range(0, n, 16):
            for i in range(top, min(n, top + 16)):
                for j in range(left, min(n, left + 16)):
                    out[j, i] = A[i, j]


@kernel
def between(L, inverses, M, work):
    """Set M, symmetric, to L⁻¹ M L⁻ᵀ."""
    solve(L, inverses, M, False)
    transpose(M, work)
    solve(L, inverses, work, True)
    transpose(work, M)
    mirror(M)


@kernel
def between_transposed(L, inverses, M, out):
    """Set out to L⁻ᵀ M L⁻¹ for a symmetric M, which is overwritten."""
    solve_transposed(L, inverses, M, False)
    transpose(M, out)
    solve_transposed(L, inverses, out, True)
    mirror(out)
