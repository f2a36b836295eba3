"""The maximum, and stable softmax, its logarithm and logsumexp, of columns: many short ones, side
by side in memory."""

# mypy: allow-untyped-defs

import numpy as np

from ..internals.functions import compiled
from .elementary import fast_exp, fast_log


@compiled()
def column_maxima(x, out):
    """out[s] = max(x[:, s]); nan if there is one, -inf if there is none."""
    n, stack = x.shape
    out[:] = -np.inf
    for i in range(n):
        for s in range(stack):
            entry, largest = x[i, s], out[s]
            out[s] = entry if (entry > largest) | (entry != entry) else largest


@compiled(counted=True)
def shares_of_column_maxima(x, out):
    """out[i, s] = 1/k if x[i, s] is one of the k largest entries of x[:, s], 0 if it is not; nan
    where an entry is nan."""
    n, stack = x.shape
    largest = np.empty(stack, x.dtype)
    total = np.zeros(stack, x.dtype)
    column_maxima(x, largest)
    for i in range(n):
        for s in range(stack):
            out[i, s] = x[i, s] == largest[s]
            total[s] += out[i, s]
    for i in range(n):
        for s in range(stack):
            out[i, s] /= total[s]


@compiled(counted=True, fastmath={"reassoc"})
def softmax_columns(x, out):
    """out[i, s] = exp(x[i, s]) / sum(exp(x[:, s])), without overflow."""
    n, stack = x.shape
    largest = np.empty(stack, x.dtype)
    total = np.zeros(stack, x.dtype)
    column_maxima(x, largest)
    for i in range(n):
        for s in range(stack):
            power = fast_exp(x[i, s] - largest[s])
            out[i, s] = power
            total[s] += power
    for i in range(n):
        for s in range(stack):
            out[i, s] /= total[s]


@compiled(counted=True)
def log_softmax_columns(x, out):
    """out[i, s] = log(exp(x[i, s]) / sum(exp(x[:, s]))), without overflow."""
    n, stack = x.shape
    largest = np.empty(stack, x.dtype)
    total = np.zeros(stack, x.dtype)
    column_maxima(x, largest)
    for i in range(n):
        for s in range(stack):
            below = x[i, s] - largest[s]
            out[i, s] = below
            total[s] += fast_exp(below)
    for s in range(stack):
        total[s] = fast_log(total[s])
    for i in range(n):
        for s in range(stack):
            out[i, s] -= total[s]


@compiled(counted=True, fastmath={"reassoc"})
def logsumexp_columns(x, out):
    """out[s] = log(sum(exp(x[:, s]))), without overflow."""
    n, stack = x.shape
    shift = np.empty(stack, x.dtype)
    column_maxima(x, shift)
    for s in range(stack):
        shift[s] = shift[s] if abs(shift[s]) < np.inf else x.dtype.type(0)
        out[s] = 0
    for i in range(n):
        for s in range(stack):
            out[s] += fast_exp(x[i, s] - shift[s])
    for s in range(stack):
        out[s] = shift[s] + fast_log(out[s])
