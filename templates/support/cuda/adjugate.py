"""The adjugate of a square matrix, by its LU factors."""

# mypy: allow-untyped-defs

import numpy as np
from numba import cuda

from .base import kernel
from .copies import copied
from .lu import lu_det, lu_factor, lu_inverse, lu_invertible


def adjugate(run, a, out, failure):
    """out (stack, n, n) = det(A) inv(A) for each matrix of `a`. It fails where one is singular."""
    stack, n, _ = a.shape
    lu, pivots, size = copied(run, a), run.empty((stack, n), np.int32), run.empty((stack,))
    lu_factor(run, lu, pivots)
    lu_invertible(run, lu, failure)
    lu_det(run, lu, pivots, size)
    lu_inverse(run, lu, pivots, out)
    run.each(scale_matrices, out.size, size, out)


@kernel("real[::1], real[:, :, ::1]")
def scale_matrices(factors, out):
    """Multiply each matrix by its factor."""
    _, n, _ = out.shape
    for entry in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        s, place = entry // (n * n), entry % (n * n)
        out[s, place // n, place % n] *= factors[s]
