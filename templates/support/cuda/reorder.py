"""Real Schur forms whose stable eigenvalues come first, by exchanging neighbouring diagonal blocks
(Bai and Demmel 1993)."""

# mypy: allow-untyped-defs

import math

from numba import cuda

from .base import device, kernel
from .quasi import coupled, solve_small
from .sylvester import standardise


@device
def exchanged_basis(t, first, high, wide, basis):
    """basis (4, 4) = [-X; I], whose first `wide` columns span the invariant subspace of the second
    of two diagonal blocks A, B, of `high` and `wide` rows from row `first` on, in those rows:
    A X - X B is what is beside A."""
    system = cuda.local.array((4, 4), "float64")
    right = cuda.local.array(4, "float64")
    solution = cuda.local.array(4, "float64")
    order = cuda.local.array(4, "int32")
    second = first + high
    for row in range(high * wide):
        i, j = row // wide, row % wide
        right[row] = t[first + i, second + j]
        for column in range(high * wide):
            k, m = column // wide, column % wide
            value = 0.0
            if j == m:
                value += t[first + i, first + k]
            if i == k:
                value -= t[second + m, second + j]
            system[row, column] = value
    solve_small(system, right, solution, order, high * wide, 0.0)
    for j in range(wide):
        for i in range(high):
            basis[i, j] = -solution[i * wide + j]
        for i in range(wide):
            basis[high + i, j] = 1.0 if i == j else 0.0


@device
def orthogonal_of(basis, size, wide, z):
    """z (4, 4) = an orthogonal matrix of `size` rows whose first `wide` columns span the same as
    those of the basis, which is overwritten: by reflections."""
    for i in range(size):
        for j in range(size):
            z[i, j] = 1.0 if i == j else 0.0
    for c in range(wide):
        scale = 0.0
        for i in range(c, size):
            scale = max(scale, abs(basis[i, c]))
        total = 0.0
        for i in range(c, size):
            basis[i, c] /= scale
            total += basis[i, c] * basis[i, c]
        length = math.copysign(math.sqrt(total), basis[c, c])
        basis[c, c] += length
        factor = 1.0 / (length * basis[c, c])
        for j in range(c + 1, wide):
            product = 0.0
            for i in range(c, size):
                product += basis[i, c] * basis[i, j]
            for i in range(c, size):
                basis[i, j] -= factor * product * basis[i, c]
        for row in range(size):
            product = 0.0
            for i in range(c, size):
                product += z[row, i] * basis[i, c]
            for i in range(c, size):
                z[row, i] -= factor * product * basis[i, c]


@device
def turn_entries(a, row, column, down, z, size, kept):
    """Multiply the vector of `size` entries of a from (row, column) on, along a column if `down`,
    by z'."""
    for k in range(size):
        kept[k] = a[row + k, column] if down else a[row, column + k]
    for j in range(size):
        total = 0.0
        for k in range(size):
            total += z[k, j] * kept[k]
        if down:
            a[row + j, column] = total
        else:
            a[row, column + j] = total


@device
def exchange_blocks(t, q, first, high, wide, precision):
    """Exchange the diagonal blocks of `high` and `wide` rows from row `first` on, by the threads of
    a block."""
    n = t.shape[0]
    basis = cuda.local.array((4, 4), "float64")
    z = cuda.local.array((4, 4), "float64")
    kept = cuda.local.array(4, "float64")
    size = high + wide
    exchanged_basis(t, first, high, wide, basis)
    orthogonal_of(basis, size, wide, z)
    cuda.syncthreads()
    for j in range(first + cuda.threadIdx.x, n, cuda.blockDim.x):
        turn_entries(t, first, j, True, z, size, kept)
    cuda.syncthreads()
    for i in range(cuda.threadIdx.x, first + size + n, cuda.blockDim.x):
        if i < first + size:
            turn_entries(t, i, first, False, z, size, kept)
        else:
            turn_entries(q, i - first - size, first, False, z, size, kept)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        for i in range(first + wide, first + size):
            for j in range(first, first + wide):
                t[i, j] = 0.0
    cuda.syncthreads()
    for part in range(2):
        row = first if part == 0 else first + wide
        if (wide if part == 0 else high) == 2:
            standardise(t, q, row, precision)


@device
def stable_first(t, q, precision):
    """Bring the diagonal blocks whose eigenvalues have negative real parts before the others; how
    many rows these have."""
    n = t.shape[0]
    placed = 0
    row = 0
    while row < n:
        wide = 2 if coupled(t, row + 1) else 1
        if t[row, row] < 0:
            here = row
            while here > placed:
                high = 2 if coupled(t, here - 1) else 1
                here -= high
                exchange_blocks(t, q, here, high, wide, precision)
            placed += wide
        row += wide
    return placed


@kernel("float64[:, :, ::1], float64[:, :, ::1], int64, float64, int32[::1], int64")
def order_schur_forms(form, vectors, count, precision, failures, failure):
    """Bring stable eigenvalues of real Schur forms first. It fails where they are not `count`."""
    for s in range(cuda.blockIdx.x, form.shape[0], cuda.gridDim.x):
        placed = stable_first(form[s], vectors[s], precision)
        if cuda.threadIdx.x == 0 and placed != count:
            failures[failure] = 1
        cuda.syncthreads()
