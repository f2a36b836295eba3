"""Rows in ascending order, and in the order of other rows; equal entries keep theirs."""

# mypy: allow-untyped-defs, disable-error-code=call-arg

import numpy as np

from ..internals.functions import compiled
from ..internals.memory import copy_entries


@compiled(counted=True)
def sorted_rows(x, out):
    """out[s] = the entries of x[s] in ascending order, nan last."""
    copy_entries(x, out)
    for s in range(len(out)):
        out[s].sort()


@compiled(counted=True)
def rows_sorted_by(values, keys, out):
    """out[s] = values[s] in the ascending order of keys[s], nan last."""
    for s in range(len(keys)):
        order = np.argsort(keys[s], kind="mergesort")
        for i in range(len(order)):
            out[s, i] = values[s, order[i]]


@compiled(counted=True)
def rows_unsorted_by(values, keys, out):
    """values[s] = out[s] in the ascending order of keys[s], nan last."""
    for s in range(len(keys)):
        order = np.argsort(keys[s], kind="mergesort")
        for i in range(len(order)):
            out[s, order[i]] = values[s, i]
