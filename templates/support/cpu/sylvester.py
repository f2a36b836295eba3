"""Sylvester's equation A X + X B = C, by Schur forms of A and B and substitution (Bartels and
Stewart 1972)."""

# mypy: allow-untyped-defs

import numpy as np

from ..internals.functions import compiled
from ..internals.memory import empty, zeros
from .blas import NO, TRANSPOSED, VECTORS, gemm
from .copies import copy_matrices
from .lapack import lapack_gees, lapack_trsyl


@compiled(counted=True)
def schur(a, form, vectors):
    """Compute a real Schur form of each matrix of `a` (stack, n, n) in LAPACK's layout:
    a[s].T = v.T @ t.T @ v with t = form[s], v = vectors[s]. False where the iteration does not
    converge."""
    stack, n, _ = a.shape
    info = empty((1,), np.int32)
    unused = zeros((max(n, 1),), np.int32)
    values = empty((2, n), form.dtype)  # real and imaginary parts
    results = (zeros((1,), np.int32), values[0], values[1])
    size = 64 * n + 64
    workspace = (empty((size,), form.dtype), size, unused, info)
    copy_matrices(a, form, False)
    for s in range(stack if n > 0 else 0):
        lapack_gees((VECTORS, NO, unused, n, form[s], n, *results, vectors[s], n, *workspace))
        if info[0] != 0:
            return False
    return True


@compiled(counted=True)
def schur_sylvester(a_form, a_vectors, b_form, b_vectors, c, out, a_transposed, b_transposed):
    """out (stack, n, m) = the X with A X + X B = C, from Schur forms of A and B, or of their
    transposes if `a_transposed`, `b_transposed`. False where A and -B share an eigenvalue."""
    stack, n, m = c.shape
    info = empty((1,), np.int32)
    scale = empty((1,), out.dtype)
    half = empty((n, m), out.dtype)
    flags = (TRANSPOSED if b_transposed else NO, TRANSPOSED if a_transposed else NO)
    for s in range(stack):
        if n > 0 and m > 0:
            gemm(1.0, a_vectors[s], False, c[s], False, 0.0, half)
            gemm(1.0, half, False, b_vectors[s], True, 0.0, out[s])
            forms = (b_form[s], m, a_form[s], n)
            lapack_trsyl((*flags, 1, m, n, *forms, out[s], m, scale, info))
            if info[0] != 0:
                return False
            gemm(1 / scale[0], a_vectors[s], True, out[s], False, 0.0, half)
            gemm(1.0, half, False, b_vectors[s], False, 0.0, out[s])
    return True
