"""Copies of stacks of matrices: as they are, transposed; identity matrices."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import kernel
from .blocks import entries


def copy_stack(run, source, target):
    """target = source, of one shape (stack, m, n)."""
    run.launch(copy_entries, *entries(source.size), source, target)


def transpose(run, source, target):
    """target (stack, n, m) = each matrix of `source` (stack, m, n) transposed."""
    run.launch(transpose_entries, *entries(source.size), source, target)


def in_rows(run, b, solve):
    """Replace each column of `b` (stack, n, columns) by what `solve` replaces the rows of an array
    (stack, columns, n) by."""
    stack, n, columns = b.shape
    if columns == 1 and b.size > 0:
        solve(b.reshape(stack, 1, n))
        return
    turned = run.empty((stack, columns, n))
    transpose(run, b, turned)
    solve(turned)
    transpose(run, turned, b)


def set_identity(run, out):
    """out (stack, n, n) = identity matrices."""
    run.launch(fill_identity, *entries(out.size), out)


@kernel("real[:, :, ::1], real[:, :, ::1]")
def copy_entries(source, target):
    """target = source, entry by entry."""
    stack, rows, columns = source.shape
    for entry in range(cuda.grid(1), stack * rows * columns, cuda.gridsize(1)):
        j = entry % columns
        i = entry // columns % rows
        s = entry // columns // rows
        target[s, i, j] = source[s, i, j]


@kernel("real[:, :, ::1], real[:, :, ::1]")
def transpose_entries(source, target):
    """target (stack, n, m) = source (stack, m, n) transposed, entry by entry."""
    stack, rows, columns = target.shape
    for entry in range(cuda.grid(1), stack * rows * columns, cuda.gridsize(1)):
        j = entry % columns
        i = entry // columns % rows
        s = entry // columns // rows
        target[s, i, j] = source[s, j, i]


@kernel("real[:, :, ::1]")
def fill_identity(out):
    """out (stack, n, n) = identity matrices."""
    stack, n, _ = out.shape
    for entry in range(cuda.grid(1), stack * n * n, cuda.gridsize(1)):
        j = entry % n
        i = entry // n % n
        out[entry // n // n, i, j] = i == j
