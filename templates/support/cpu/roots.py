"""Principal square roots, in the basis of a real Schur form (Higham 1987).

LAPACK's Schur form of A' is, read by rows, a lower quasi-triangular L with A = V' L V: its diagonal
blocks have 1 row or, for a pair of complex eigenvalues, 2 rows.
"""

# mypy: allow-untyped-defs, disable-error-code=call-arg

import numpy as np

from ..internals.arithmetic import epsilon
from ..internals.functions import compiled
from ..internals.memory import copy_entries, empty
from .blas import NO, gemm
from .copies import copy_matrices
from .lapack import lapack_trsyl
from .sylvester import schur


@compiled()
def principal_schur(a, form, vectors, precision):
    """`schur` of each matrix of `a` (stack, n, n), which must have a principal square root.

    False where no Schur form is found, or an eigenvalue lies on the closed negative real axis, up
    to rounding errors of the given precision."""
    stack, n, _ = a.shape
    if not schur(a, form, vectors):
        return False
    for s in range(stack):
        largest = 0.0
        for i in range(n):
            for j in range(n):
                largest = max(largest, abs(form[s, i, j]))
        rounding = n * precision * largest
        for i in range(n):
            squared_imaginary = 0.0
            if i + 1 < n:
                squared_imaginary = -form[s, i, i + 1] * form[s, i + 1, i]
            if i > 0 and form[s, i - 1, i] != 0:
                squared_imaginary = -form[s, i - 1, i] * form[s, i, i - 1]
            if not (form[s, i, i] > rounding or squared_imaginary > rounding * rounding):
                return False
    return True


@compiled(counted=True)
def lower_sylvester(b, a, c):
    """Replace c (n, m) by the X with b X + X a = c, for lower quasi-triangular b (n, n) and
    a (m, m). False where b and -a share an eigenvalue."""
    rows, columns = c.shape
    info = empty((1,), np.int32)
    scale = empty((1,), np.float64)
    a_step, b_step = a.strides[0] // a.itemsize, b.strides[0] // b.itemsize
    c_step = c.strides[0] // c.itemsize
    lapack_trsyl((NO, NO, 1, columns, rows, a, a_step, b, b_step, c, c_step, scale, info))
    for i in range(rows):
        for j in range(columns):
            c[i, j] /= scale[0]
    return info[0] == 0


@compiled()
def block_root(a, row, width, root):
    """Put the principal root of the diagonal block of `width` rows at `row` into `root`."""
    if width == 1:
        root[row, row] = np.sqrt(a[row, row])
        return
    below, above, real = a[row + 1, row], a[row, row + 1], a[row, row]
    squared = -above * below
    modulus = np.hypot(real, np.sqrt(squared))
    sum_of_parts = (
        squared / (modulus - real) if real < 0 else modulus + real
    )  # without cancellation
    half = np.sqrt(sum_of_parts / 2)
    root[row, row] = root[row + 1, row + 1] = half
    root[row, row + 1] = above / (2 * half)
    root[row + 1, row] = below / (2 * half)


@compiled()
def lower_root(a, root):
    """root = the principal square root of a lower quasi-triangular matrix in LAPACK's standard
    form. False where the matrix is singular to working precision."""
    n = a.shape[0]
    start = 0
    copy_entries(a, root)
    while start < n:
        width = 2 if start + 1 < n and a[start, start + 1] != 0 else 1
        stop = start + width
        block_root(a, start, width, root)
        if start > 0 and not lower_sylvester(
            root[start:stop, start:stop], root[:start, :start], root[start:stop, :start]
        ):
            return False
        start = stop
    return True


@compiled(counted=True)
def sqrtm(a, out):
    """out (stack, n, n) = the principal square root.

    False where an eigenvalue of A lies on the closed negative real axis.
    """
    stack, n, _ = a.shape
    matrices = a.astype(np.float64)
    form = empty((stack, n, n), np.float64)
    vectors = empty((stack, n, n), np.float64)
    if not principal_schur(matrices, form, vectors, epsilon(out)):
        return False
    half = empty((n, n), np.float64)
    for s in range(stack):
        if not lower_root(form[s], matrices[s]):
            return False
        gemm(1.0, vectors[s], True, matrices[s], False, 0.0, half)
        gemm(1.0, half, False, vectors[s], False, 0.0, form[s])
    copy_matrices(form, out, False)
    return True
