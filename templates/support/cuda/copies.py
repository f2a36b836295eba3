"""Copies of stacks of matrices: as they are, transposed; identity matrices."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import kernel
from .blocks import entries, position


def copy_stack(run, source, target):
    """target = source, of one shape (stack, m, n)."""
    run.launch(copy_entries, *entries(source.size), source, target)


def copied(run, source):
    """A new array of the same numbers, of the type of the run."""
    target = run.empty(source.shape)
    copy_stack(run, source, target)
    return target


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
    for number in range(cuda.grid(1), target.size, cuda.gridsize(1)):
        s, i, j = position(number, target.shape)
        target[s, i, j] = source[s, i, j]


@kernel("real[:, :, ::1], real[:, :, ::1]")
def transpose_entries(source, target):
    """target (stack, n, m) = source (stack, m, n) transposed, entry by entry."""
    for number in range(cuda.grid(1), target.size, cuda.gridsize(1)):
        s, i, j = position(number, target.shape)
        target[s, i, j] = source[s, j, i]


@kernel("real[:, :, ::1]")
def fill_identity(out):
    """out (stack, n, n) = identity matrices."""
    for number in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        s, i, j = position(number, out.shape)
        out[s, i, j] = i == j
