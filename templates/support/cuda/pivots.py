"""Checks that numbers are positive, or not zero."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import kernel


def positive_pivot(run, x, out, failure):
    """out (stack,) = x. It fails where a number is not positive."""
    run.launch(copy_pivots, len(x), x, out, 1, run.failures, failure)


def nonzero_pivot(run, x, out, failure):
    """out (stack,) = x. It fails where a number is zero."""
    run.launch(copy_pivots, len(x), x, out, 0, run.failures, failure)


@kernel("real[::1], real[::1], int64, int32[::1], int64")
def copy_pivots(x, out, positive, failures, failure):
    """out = x. Fails where a number is zero or, if `positive`, not positive."""
    for s in range(cuda.grid(1), len(x), cuda.gridsize(1)):
        out[s] = x[s]
        if x[s] == 0 or (positive and not x[s] > 0):
            failures[failure] = 1
