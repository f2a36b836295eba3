"""Matrix products."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import kernel, position
from .libraries import _cublas, gemm_by_library, matrix_shape

MAX_KERNEL_OPS = 4096
"""Products with at most this many multiplications are computed by our kernel, others by cuBLAS."""


def gemm(run, alpha, left, left_transposed, right, right_transposed, beta, target):
    """target = alpha * op(left) @ op(right) + beta * target.

    Arrays have 2 axes, or 3 for a stack; a factor with 2 axes is shared by a stack. `target` is not
    read if beta is 0. For complex numbers op is the conjugate transpose.
    """
    rows, columns = matrix_shape(target)
    inner = matrix_shape(left)[0 if left_transposed else 1]
    if target.size == 0:
        return
    is_real = target.dtype.kind == "f"
    if is_real and rows * columns * inner > MAX_KERNEL_OPS and _cublas is not None:
        gemm_by_library(run, alpha, left, left_transposed, right, right_transposed, beta, target)
        return
    flags = int(bool(left_transposed)), int(bool(right_transposed))
    operands = as_stack(left), as_stack(right), as_stack(target), *flags, float(alpha), float(beta)
    run.launch(gemm_entries, target.size, *operands)


def product(run, left, left_transposed, right, right_transposed, alpha=1.0):
    """A new array of alpha * op(left) @ op(right), for stacks of matrices."""
    rows, columns = left.shape[1 + left_transposed], right.shape[2 - right_transposed]
    target = run.empty((left.shape[0], rows, columns), left.dtype)
    gemm(run, alpha, left, left_transposed, right, right_transposed, 0.0, target)
    return target


symmetric_gemm = gemm  # unlike on the CPU, both triangles are computed


def as_stack(array):
    """A matrix as a stack of one."""
    return array if array.ndim == 3 else array.reshape(1, *array.shape)


STACKS = "{0}[:, :, ::1], {0}[:, :, ::1], {0}[:, :, ::1], int64, int64, real, real"


@kernel(STACKS.format("real"), STACKS.format("complex128"))
def gemm_entries(left, right, target, left_transposed, right_transposed, alpha, beta):
    """`gemm` of stacks, a thread for each entry."""
    inner = left.shape[1] if left_transposed else left.shape[2]
    zero = target.dtype.type(0)
    for number in range(cuda.grid(1), target.size, cuda.gridsize(1)):
        s, i, j = position(number, target.shape)
        a = s if left.shape[0] > 1 else 0
        b = s if right.shape[0] > 1 else 0
        total = zero
        for k in range(inner):
            x = left[a, k, i].conjugate() if left_transposed else left[a, i, k]
            total += x * (right[b, j, k].conjugate() if right_transposed else right[b, k, j])
        if beta == 0:
            target[s, i, j] = alpha * total
        else:
            target[s, i, j] = alpha * total + beta * target[s, i, j]
