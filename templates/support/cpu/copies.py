"""Copies of stacks of matrices of another type, and transposes."""

# mypy: allow-untyped-defs

from ..internals.functions import compiled


@compiled(linked=True)
def copy_matrices(source, out, transposed):
    """out (stack, m, n) = each matrix of `source`, or its transpose, in the type of `out`."""
    stack, m, n = out.shape
    for s in range(stack):
        for i in range(m):
            for j in range(n):
                out[s, i, j] = source[s, j, i] if transposed else source[s, i, j]
