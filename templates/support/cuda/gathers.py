"""Rows of matrices at positions, and sums of rows at equal positions."""

# mypy: allow-untyped-defs

import math

from numba import cuda

from .base import device, kernel


def rows_at(run, matrices, positions, out):
    """out[s, i] = matrices[s, positions[s, i]]; matrices (stack, rows, columns)."""
    run.launch(copy_rows, out.size, matrices, positions, out)


def sums_at(run, values, positions, ones, out):
    """out[s, k] = the sum of values[s, i] over i with positions[s, i] = k. `ones` is for the CPU's
    function of this name."""
    run.launch(sum_rows, out.size, values, positions, out)


@device
def row_number(position, rows):
    """The position, rounded down, modulo the number of rows; -1 for nan and infinite ones."""
    if not abs(position) < math.inf:
        return -1
    remainder = math.fmod(math.floor(position), rows)
    return int(remainder + rows if remainder < 0 else remainder)


@kernel("real[:, :, ::1], real[:, ::1], real[:, :, ::1]")
def copy_rows(matrices, positions, out):
    """Rows at positions, a thread for each entry."""
    _, count, columns = out.shape
    for entry in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        s, i, j = entry // columns // count, entry // columns % count, entry % columns
        row = row_number(positions[s, i], matrices.shape[1])
        out[s, i, j] = matrices[s, row, j] if row >= 0 else math.nan


@kernel("real[:, :, ::1], real[:, ::1], real[:, :, ::1]")
def sum_rows(values, positions, out):
    """Sums of rows, a thread for each entry of the result: no two threads add to one."""
    _, rows, columns = out.shape
    for entry in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        s, k, j = entry // columns // rows, entry // columns % rows, entry % columns
        total = out.dtype.type(0)
        for i in range(positions.shape[1]):
            row = row_number(positions[s, i], rows)
            if row == k:
                total += values[s, i, j]
            elif row < 0:
                total += math.nan
        out[s, k, j] = total
