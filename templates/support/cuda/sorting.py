"""Rows in ascending order, and in the order of other rows; equal entries keep theirs."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import device, kernel


def sorted_rows(run, x, out):
    """out[s] = the entries of x[s] in ascending order, nan last; x (stack, n)."""
    rows_sorted_by(run, x, x, out)


def rows_sorted_by(run, values, keys, out):
    """out[s] = values[s] in the ascending order of keys[s], nan last; all (stack, n)."""
    run.launch(entries_to_ranks, keys.size, values, keys, out)


def rows_unsorted_by(run, values, keys, out):
    """values[s] = out[s] in the ascending order of keys[s], nan last; all (stack, n)."""
    run.launch(entries_from_ranks, keys.size, values, keys, out)


@device
def precedes(x, y):
    """Check whether x comes before y in ascending order, where nan comes last."""
    return x < y or (x == x and y != y)


@device
def rank(keys, s, i):
    """The place of keys[s, i] in the row's ascending order, by a comparison with each entry: a
    thread for each entry needs no other thread's result."""
    count = 0
    for j in range(keys.shape[1]):
        if precedes(keys[s, j], keys[s, i]) or (j < i and not precedes(keys[s, i], keys[s, j])):
            count += 1
    return count


@kernel("real[:, ::1], real[:, ::1], real[:, ::1]")
def entries_to_ranks(values, keys, out):
    """out[s, rank of keys[s, i]] = values[s, i], a thread for each entry."""
    n = keys.shape[1]
    for entry in range(cuda.grid(1), keys.size, cuda.gridsize(1)):
        s, i = entry // n, entry % n
        out[s, rank(keys, s, i)] = values[s, i]


@kernel("real[:, ::1], real[:, ::1], real[:, ::1]")
def entries_from_ranks(values, keys, out):
    """out[s, i] = values[s, rank of keys[s, i]], a thread for each entry."""
    n = keys.shape[1]
    for entry in range(cuda.grid(1), keys.size, cuda.gridsize(1)):
        s, i = entry // n, entry % n
        out[s, i] = values[s, rank(keys, s, i)]
