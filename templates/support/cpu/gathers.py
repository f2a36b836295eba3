"""Rows of matrices at positions, and sums of rows at equal positions."""

# mypy: allow-untyped-defs

import numpy as np

from ..internals.functions import compiled


@compiled()
def row_number(position, rows):
    """Return a position, rounded down, modulo the number of rows; -1 for nan and infinity."""
    if not abs(position) < np.inf:
        return -1
    return int(np.floor(position) % rows)


@compiled()
def rows_at(matrices, positions, out):
    """out[s, i] = matrices[s, positions[s, i]], nan where that is no row."""
    stack, rows, columns = matrices.shape
    for s in range(stack):
        for i in range(positions.shape[1]):
            row = row_number(positions[s, i], rows)
            for j in range(columns):
                out[s, i, j] = matrices[s, row, j] if row >= 0 else np.nan


@compiled()
def sums_at(values, positions, ones, out):
    """out[s, k] = the sum of values[s, i] over i with positions[s, i] = k; all nan if a position is
    no row. `ones` (stack, rows) only gives the operation the number of rows."""
    out[:] = 0
    stack, rows, columns = out.shape
    for s in range(stack):
        for i in range(positions.shape[1]):
            row = row_number(positions[s, i], rows)
            if row < 0:
                out[s] = np.nan
            for j in range(columns if row >= 0 else 0):
                out[s, row, j] += values[s, i, j]
