"""A X + X B = C by Bartels and Stewart (1972): Schur forms of A and B, then substitution."""

# mypy: allow-untyped-defs

import numpy as np

from ..internals.functions import compiled
from .base import NO, TRANSPOSED, VECTORS
from .blas import gemm
from .lapack import lapack_gees, lapack_trsyl


@compiled(counted=True)
def schur(a, form, vectors):
    """Real Schur form of each matrix of `a` (stack, n, n), as LAPACK lays it out:
    a[s].T = v.T @ t.T @ v with t = form[s], v = vectors[s].

    False where the iteration does not converge.
    """
    stack, n, _ = a.shape
    info = np.empty(1, np.int32)
    unused = np.zeros(max(n, 1), np.int32)
    values = np.empty((2, n), form.dtype)  # real and imaginary parts
    found = (np.zeros(1, np.int32), values[0], values[1])
    size = 64 * n + 64
    last = (np.empty(size, form.dtype), size, unused, info)
    for s in range(stack):
        for i in range(n):
            for j in range(n):
                form[s, i, j] = a[s, i, j]
        if n > 0:
            lapack_gees((VECTORS, NO, unused, n, form[s], n, *found, vectors[s], n, *last))
            if info[0] != 0:
                return False
    return True


@compiled(counted=True)
def schur_sylvester(a_form, a_vectors, b_form, b_vectors, c, out, left_turned, right_turned):
    """out (stack, n, m) = the X of A X + X B = C, from Schur forms of A and B, or of their
    transposes where these are turned.

    False where A and -B share an eigenvalue, so that the equation is singular.
    """
    stack, n, m = c.shape
    real = out.dtype.type
    info = np.empty(1, np.int32)
    scale = np.ones(1, out.dtype)
    half = np.empty((n, m), out.dtype)
    flags = (TRANSPOSED if right_turned else NO, TRANSPOSED if left_turned else NO)
    for s in range(stack):
        if n > 0 and m > 0:
            gemm(real(1), a_vectors[s], False, c[s], False, real(0), half)
            gemm(real(1), half, False, b_vectors[s], True, real(0), out[s])
            known = (b_form[s], m, a_form[s], n)
            lapack_trsyl((*flags, 1, m, n, *known, out[s], m, scale, info))
            if info[0] != 0:
                return False
            gemm(real(1) / scale[0], a_vectors[s], True, out[s], False, real(0), half)
            gemm(real(1), half, False, b_vectors[s], False, real(0), out[s])
    return True
