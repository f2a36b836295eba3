"""Products of matrices."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import kernel
from .blocks import entries, position
from .libraries import _cublas, gemm_by_library, matrix_shape

FEW = 4096
"""Products of no more multiplications are not left to cuBLAS."""


def gemm(run, alpha, left, left_transposed, right, right_transposed, beta, target):
    """target = alpha * op(left) @ op(right) + beta * target.

    Each of them has 2 axes, or 3 for a stack; one factor is for all of a stack if it has 2 axes.
    What is in `target` is not read if beta is 0.
    """
    rows, columns = matrix_shape(target)
    inner = matrix_shape(left)[0 if left_transposed else 1]
    if target.size == 0:
        return
    if rows * columns * inner > FEW and _cublas is not None:
        gemm_by_library(run, alpha, left, left_transposed, right, right_transposed, beta, target)
        return
    flags = int(bool(left_transposed)), int(bool(right_transposed))
    operands = as_stack(left), as_stack(right), as_stack(target), *flags, float(alpha), float(beta)
    run.launch(gemm_entries, *entries(target.size), *operands)


symmetric_gemm = gemm  # for results that are symmetric: nothing is left out


def as_stack(array):
    """A matrix as a stack of one."""
    return array if array.ndim == 3 else array.reshape(1, *array.shape)


@kernel("real[:, :, ::1], real[:, :, ::1], real[:, :, ::1], int64, int64, real, real")
def gemm_entries(left, right, target, left_transposed, right_transposed, alpha, beta):
    """`gemm` of stacks, every entry by one thread."""
    inner = left.shape[1] if left_transposed else left.shape[2]
    zero = target.dtype.type(0)
    for number in range(cuda.grid(1), target.size, cuda.gridsize(1)):
        s, i, j = position(number, target.shape)
        a = s if left.shape[0] > 1 else 0
        b = s if right.shape[0] > 1 else 0
        total = zero
        for k in range(inner):
            x = left[a, k, i] if left_transposed else left[a, i, k]
            total += x * (right[b, j, k] if right_transposed else right[b, k, j])
        if beta == zero:
            target[s, i, j] = alpha * total
        else:
            target[s, i, j] = alpha * total + beta * target[s, i, j]
