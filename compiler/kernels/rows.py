"""Stable softmax and logsumexp of each row."""

# mypy: allow-untyped-defs

import numpy as np

from derivatrix.compiler.kernels.base import compiled


@compiled()
def row_maximum(row):
    """The largest entry; nan if there is one, -inf if there is none."""
    largest = row.dtype.type(-np.inf)
    for value in row:
        if value > largest or value != value:
            largest = value
    return largest


@compiled()
def softmax(x, out):
    """out[s, i] = exp(x[s, i]) / sum(exp(x[s, :])), without overflow."""
    stack, n = x.shape
    for s in range(stack):
        largest = row_maximum(x[s])
        total = out.dtype.type(0)
        for i in range(n):
            out[s, i] = np.exp(x[s, i] - largest)
            total += out[s, i]
        for i in range(n):
            out[s, i] /= total


@compiled()
def logsumexp(x, out):
    """out[s] = log(sum(exp(x[s, :]))), without overflow."""
    stack, n = x.shape
    for s in range(stack):
        largest = row_maximum(x[s])
        shift = largest if abs(largest) < np.inf else out.dtype.type(0)
        total = out.dtype.type(0)
        for i in range(n):
            total += np.exp(x[s, i] - shift)
        out[s] = shift + np.log(total)
