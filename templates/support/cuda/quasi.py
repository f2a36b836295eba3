"""Equations with upper quasi-triangular matrices, whose diagonal blocks have one row or, for a
pair of complex eigenvalues, two: by substitution, block by block. A block is solved for by one
thread, and all blocks that do not wait for each other at once.
"""

# mypy: allow-untyped-defs

from numba import cuda

from .base import device


@device
def coupled(a, row):
    """Whether a row and the one before are of the same diagonal block."""
    return row > 0 and row < a.shape[0] and a[row, row - 1] != 0


@device
def exchange_pivot(system, right, order, size, step):
    """Bring the largest entry of what is left of a system to the diagonal; its size."""
    largest = 0.0
    row, column = step, step
    for i in range(step, size):
        for j in range(step, size):
            if abs(system[i, j]) > largest:
                largest = abs(system[i, j])
                row, column = i, j
    for j in range(size):
        system[step, j], system[row, j] = system[row, j], system[step, j]
    for i in range(size):
        system[i, step], system[i, column] = system[i, column], system[i, step]
    right[step], right[row] = right[row], right[step]
    order[step], order[column] = order[column], order[step]
    return largest


@device
def solve_small(system, right, solution, order, size, least):
    """Solve a system of at most four equations, which is overwritten, by Gauss with complete
    pivoting. Whether no pivot is `least` or smaller; those that are, become `least`, or 1."""
    fine = True
    for k in range(size):
        order[k] = k
    for k in range(size):
        if not exchange_pivot(system, right, order, size, k) > least:
            fine = False
            system[k, k] = least if least > 0 else 1.0
        for i in range(k + 1, size):
            factor = system[i, k] / system[k, k]
            for j in range(k + 1, size):
                system[i, j] -= factor * system[k, j]
            right[i] -= factor * right[k]
    for step in range(size):
        k = size - 1 - step
        for j in range(k + 1, size):
            right[k] -= system[k, j] * right[j]
        right[k] /= system[k, k]
    for k in range(size):
        solution[order[k]] = right[k]
    return fine


@device
def entry_of(a, turned, i, j):
    """Entry i, j of a matrix, or of its transpose."""
    return a[j, i] if turned else a[i, j]


@device
def solve_block(a, b, y, first, left, high, wide, a_turned, b_turned, least):
    """Replace the block of y from row `first` and column `left` on, of `high` rows and `wide`
    columns, by the X with op(A) X + X op(B) = it, for the diagonal blocks A, B there. Whether that
    is not singular: no pivot is `least` or smaller."""
    system = cuda.local.array((4, 4), "float64")
    right = cuda.local.array(4, "float64")
    solution = cuda.local.array(4, "float64")
    order = cuda.local.array(4, "int32")
    size = high * wide
    for row in range(size):
        i, j = row // wide, row % wide
        right[row] = y[first + i, left + j]
        for column in range(size):
            k, m = column // wide, column % wide
            value = 0.0
            if j == m:
                value += entry_of(a, a_turned, first + i, first + k)
            if i == k:
                value += entry_of(b, b_turned, left + m, left + j)
            system[row, column] = value
    fine = solve_small(system, right, solution, order, size, least)
    for row in range(size):
        y[first + row // wide, left + row % wide] = solution[row]
    return fine


@device
def in_order(a, position, forward):
    """The first row of the diagonal block that is met at a position on the way through a matrix,
    and its rows; no rows where the position is within a block.

    Forward from the first row on, else backward from the last.
    """
    if forward:
        first = position
        if coupled(a, first):
            return first, 0
    else:
        first = a.shape[0] - 1 - position
        if coupled(a, first + 1):
            return first, 0
        if coupled(a, first):
            return first - 1, 2
        return first, 1
    return first, 2 if coupled(a, first + 1) else 1


@device
def reduce_block(a, b, y, first, left, high, wide, a_turned, b_turned):
    """Take off a block of y what is known of op(A) Y + Y op(B) there."""
    n, m = y.shape
    above, below = 0, first
    if not a_turned:
        above, below = first + high, n
    before, behind = 0, left
    if b_turned:
        before, behind = left + wide, m
    for i in range(first, first + high):
        for j in range(left, left + wide):
            total = y.dtype.type(0)
            for k in range(above, below):
                total += entry_of(a, a_turned, i, k) * y[k, j]
            for k in range(before, behind):
                total += y[i, k] * entry_of(b, b_turned, k, j)
            y[i, j] -= total


@device
def substitute_sylvester(a, b, y, a_turned, b_turned, least):
    """Replace y (n, m) by the X with op(A) X + X op(B) = y, by the threads of a block. Whether no
    block that this thread has solved for is singular."""
    n, m = y.shape
    fine = True
    for wave in range(n + m - 1):
        for position in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            other = wave - position
            if other >= 0 and other < m:
                first, high = in_order(a, position, a_turned)
                left, wide = in_order(b, other, not b_turned)
                if high > 0 and wide > 0:
                    reduce_block(a, b, y, first, left, high, wide, a_turned, b_turned)
                    fine &= solve_block(a, b, y, first, left, high, wide, a_turned, b_turned, least)
        cuda.syncthreads()
    return fine
