"""The maximum, and stable softmax, its logarithm and logsumexp, of columns: many short ones, side
by side in memory."""

# mypy: allow-untyped-defs

import numpy as np

from ..internals.functions import compiled
from ..internals.memory import empty, zeros
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
    largest = empty((stack,), x.dtype)
    total = zeros((stack,), x.dtype)
    column_maxima(x, largest)
    for i in range(n):
        for s in range(stack):
            out[i, s] = x[i, s] == largest[s]
            total[s] += out[i, s]
    for i in range(n):
        for s in range(stack):
            out[i, s] /= total[s]


@compiled(fastmath={"reassoc"})
def softmax_of_columns(x, out, largest, total):
    """out[i, s] = exp(x[i, s]) / sum(exp(x[:, s])), without overflow; largest[s] = max(x[:, s]),
    total[s] = sum(exp(x[:, s] - largest[s]))."""
    n, stack = x.shape
    column_maxima(x, largest)
    total[:] = 0
    for i in range(n):
        for s in range(stack):
            power = fast_exp(x[i, s] - largest[s])
            out[i, s] = power
            total[s] += power
    for i in range(n):
        for s in range(stack):
            out[i, s] /= total[s]


@compiled(counted=True)
def softmax_columns(x, out):
    """Compute the softmax of each column of x (n, stack)."""
    largest = empty((x.shape[1],), x.dtype)
    total = empty((x.shape[1],), x.dtype)
    softmax_of_columns(x, out, largest, total)


@compiled()
def logs_of_sums(largest, total):
    """total[s] = largest[s] + log(total[s]), or an infinite largest[s] itself."""
    for s in range(len(total)):
        logarithm = largest[s] + fast_log(total[s])
        total[s] = logarithm if abs(largest[s]) < np.inf else largest[s]


@compiled(counted=True)
def softmax_and_logsumexp_columns(x, out, logarithms):
    """Compute softmax and log(sum(exp(x[:, s]))) of each column of x (n, stack)."""
    largest = empty((x.shape[1],), x.dtype)
    softmax_of_columns(x, out, largest, logarithms)
    logs_of_sums(largest, logarithms)


@compiled(counted=True)
def softmax_and_log_softmax_columns(x, out, logarithms):
    """Compute softmax and its logarithm of each column of x (n, stack)."""
    n, stack = x.shape
    largest = empty((stack,), x.dtype)
    total = empty((stack,), x.dtype)
    softmax_of_columns(x, out, largest, total)
    for s in range(stack):
        total[s] = fast_log(total[s])
    for i in range(n):
        for s in range(stack):
            logarithms[i, s] = (x[i, s] - largest[s]) - total[s]


@compiled(counted=True)
def log_softmax_columns(x, out):
    """out[i, s] = log(exp(x[i, s]) / sum(exp(x[:, s]))), without overflow."""
    n, stack = x.shape
    largest = empty((stack,), x.dtype)
    total = zeros((stack,), x.dtype)
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
    largest = empty((stack,), x.dtype)
    column_maxima(x, largest)
    out[:] = 0
    for i in range(n):
        for s in range(stack):
            out[s] += fast_exp(x[i, s] - largest[s])
    logs_of_sums(largest, out)
