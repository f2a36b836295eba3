"""Copies of stacks of matrices of another type, transposes, and axes in another order."""

# mypy: allow-untyped-defs, disable-error-code="call-arg, var-annotated"

from ..internals.functions import compiled
from ..internals.memory import shaped


@compiled(linked=True)
def copy_matrices(source, out, transposed):
    """out (stack, m, n) = each matrix of `source`, or its transpose, in the type of `out`."""
    stack, m, n = out.shape
    for s in range(stack):
        for i in range(m):
            for j in range(n):
                out[s, i, j] = source[s, j, i] if transposed else source[s, i, j]


@compiled()
def copy_permuted(source, out, first, second, third):
    """Copy an array (three axes) with its axes in another order: its axis `first` becomes the first
    one of `out`. A loop in each kernel would take 0.2 s to compile."""
    _, rows, columns = source.shape
    steps = (rows * columns, columns, 1)
    i_step, j_step, k_step = steps[first], steps[second], steps[third]
    entries = shaped(source, (source.size,))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            start = i * i_step + j * j_step
            for k in range(out.shape[2]):
                out[i, j, k] = entries[start + k * k_step]
