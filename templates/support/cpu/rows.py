"""The maximum of each row, and stable softmax, its logarithm and logsumexp."""

# mypy: allow-untyped-defs, disable-error-code="call-arg, var-annotated"

import numpy as np
from numba import types

from ..internals.arithmetic import choose_where, number_function
from ..internals.functions import compiled
from ..internals.memory import shaped
from .elementary import fast_exp, fast_log

INTEGER_OF = {types.float32: types.int32, types.float64: types.int64}


def ordered_bits(bits):
    """Map the bits of numbers to integers in the same order, or such integers to bits."""
    mask = bits.integer("ashr", 63 if bits.double else 31).integer("lshr", 1)
    return bits.integer("xor", mask)


def write_order(x):
    """Return an integer for a number, in the same order; the largest one for nan."""
    integer = ordered_bits(x.bits())
    return choose_where(x, "ord", x, integer, integer.term(integer.like(x.sign - 1)))


order_of = number_function(write_order, INTEGER_OF)
NUMBER_OF = {integer: real for real, integer in INTEGER_OF.items()}
number_of_order = number_function(lambda integer: ordered_bits(integer).number(), NUMBER_OF)


@compiled(linked=True)
def row_maximum(x, s):
    """Return the largest entry of x[s, :]; nan if an entry is nan, -inf if there are no entries. It
    compares integers, since loops over numbers that may be nan are not vectorised."""
    largest = order_of(x.dtype.type(-np.inf))
    for i in range(x.shape[1]):
        largest = max(largest, order_of(x[s, i]))
    return number_of_order(largest)


@compiled(linked=True)
def exponentials(x, out):
    """out[s, i] = exp(x[s, i] - max(x[s, :])), which does not overflow."""
    for s in range(x.shape[0]):
        largest = row_maximum(x, s)
        for i in range(x.shape[1]):
            out[s, i] = x[s, i] - largest
    entries = shaped(out, (out.size,))
    for i in range(entries.size):  # one loop: short rows would leave vector instructions idle
        entries[i] = fast_exp(entries[i])


@compiled(linked=True, fastmath={"reassoc"})
def divide_by_sum(x, s):
    """Divide x[s, :] by its sum, and return the sum."""
    total = x.dtype.type(0)
    for i in range(x.shape[1]):
        total += x[s, i]
    for i in range(x.shape[1]):
        x[s, i] /= total
    return total


@compiled(linked=True)
def log_of_sum(largest, total):
    """Return largest + log(total), or an infinite `largest` itself."""
    return largest + fast_log(total) if abs(largest) < np.inf else largest


@compiled()
def softmax(x, out):
    """Compute the softmax of each row of x (stack, n)."""
    exponentials(x, out)
    for s in range(x.shape[0]):
        divide_by_sum(out, s)


@compiled()
def softmax_and_logsumexp(x, out, logarithms):
    """Compute softmax and log(sum(exp(x[s, :]))) of each row of x (stack, n)."""
    exponentials(x, out)
    for s in range(x.shape[0]):
        logarithms[s] = log_of_sum(row_maximum(x, s), divide_by_sum(out, s))


@compiled()
def softmax_and_log_softmax(x, out, logarithms):
    """Compute softmax and its logarithm of each row of x (stack, n)."""
    exponentials(x, out)
    for s in range(x.shape[0]):
        largest = row_maximum(x, s)
        log_total = fast_log(divide_by_sum(out, s))
        for i in range(x.shape[1]):
            logarithms[s, i] = (x[s, i] - largest) - log_total


@compiled(fastmath={"reassoc"})
def log_softmax(x, out):
    """out[s, i] = log(exp(x[s, i]) / sum(exp(x[s, :]))), without overflow."""
    stack, n = x.shape
    for s in range(stack):
        largest = row_maximum(x, s)
        total = out.dtype.type(0)
        for i in range(n):
            below = x[s, i] - largest
            out[s, i] = below
            total += fast_exp(below)
        total = fast_log(total)
        for i in range(n):
            out[s, i] -= total


@compiled(fastmath={"reassoc"})
def logsumexp(x, out):
    """out[s] = log(sum(exp(x[s, :]))), without overflow."""
    stack, n = x.shape
    for s in range(stack):
        largest = row_maximum(x, s)
        total = out.dtype.type(0)
        for i in range(n):
            total += fast_exp(x[s, i] - largest)
        out[s] = log_of_sum(largest, total)
