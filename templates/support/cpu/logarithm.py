"""The matrix logarithm and its Fréchet derivatives, by inverse scaling and squaring (Higham,
Functions of Matrices, 2008, section 11.5): square roots until Gauss-Legendre quadrature
suffices."""

# mypy: allow-untyped-defs

import numpy as np

from ..internals.arithmetic import epsilon
from ..internals.functions import compiled
from ..internals.memory import empty, zeros
from .blas import gemm
from .frechet import combine_blocks, divide_blocks, frechet_blocks, last_entries, scale_blocks
from .roots import lower_root, lower_sylvester, principal_schur

LEGENDRE_NODES = np.polynomial.legendre.leggauss(8)[0] / 2 + 0.5
LEGENDRE_WEIGHTS = np.polynomial.legendre.leggauss(8)[1] / 2


@compiled()
def root_of_blocks(x, out):
    """out = the square root of Fréchet blocks whose first entry is lower quasi-triangular. False
    where that is singular to working precision."""
    n = x.shape[1]
    if not lower_root(x[0], out[0]):
        return False
    for s in range(1, x.shape[0]):
        scale_blocks(1.0, x[s : s + 1], out[s : s + 1])
        t = (s - 1) & s
        while t > 0:
            gemm(-1.0, out[t], False, out[s ^ t], False, 1.0, out[s])
            t = (t - 1) & s
        root = out[0, :n, :n]
        if not lower_sylvester(root, root, out[s, :n, :n]):
            return False
    return True


@compiled()
def far_from_identity(a):
    """Check whether the 1-norm of A - I exceeds 1/4."""
    for j in range(a.shape[1]):
        total = 0.0
        for i in range(a.shape[0]):
            total += abs(a[i, j] - 1.0 if i == j else a[i, j])
        if total > 0.25:
            return True
    return False


@compiled(counted=True)
def logm_blocks(x, out):
    """out = the logarithm of Fréchet blocks whose first entry is lower quasi-triangular; x is
    overwritten. False where that entry is singular to working precision.

    log(I + Z) is the integral of Z inv(I + t Z) over t from 0 to 1. For norms of Z up to 1/4, eight
    nodes give an error below 1e-17.
    """
    n = x.shape[1]
    roots = 0
    while far_from_identity(x[0]):
        if roots == 1000 or not root_of_blocks(x, out):
            return False
        scale_blocks(1.0, out, x)
        roots += 1
    terms = zeros((4, *x.shape), np.float64)  # the identity, Z, I + t Z, Z inv(I + t Z)
    for i in range(n):
        terms[0, 0, i, i] = 1.0
        x[0, i, i] -= 1.0
    scale_blocks(1.0, x, terms[1])
    scale_blocks(0.0, x, out)
    weights = empty((2,), np.float64)
    weights[0] = 1.0
    for node in range(len(LEGENDRE_NODES)):
        weights[1] = LEGENDRE_NODES[node]
        combine_blocks(weights, terms, terms[2])
        scale_blocks(LEGENDRE_WEIGHTS[node], x, terms[3])
        if not divide_blocks(terms[3], terms[2]):
            return False
        out += terms[3]
    scale_blocks(2.0**roots, out, out)
    return True


@compiled(counted=True)
def logm(*arrays):
    """out (stack, n, n) = the k-th derivative of the principal logarithm at A, for arrays A,
    E_1, ... E_k, out.

    False where an eigenvalue of A lies on the closed negative real axis.
    """
    out = arrays[-1]
    x = frechet_blocks(arrays)
    stack, count, n, _ = x.shape
    form = empty((stack, n, n), np.float64)
    vectors = empty((stack, n, n), np.float64)
    if not principal_schur(np.ascontiguousarray(x[:, 0]), form, vectors, epsilon(out)):
        return False
    y = empty(x.shape, x.dtype)
    half = empty((n, n), np.float64)
    for s in range(stack):
        for entry in range(count):
            gemm(1.0, vectors[s], False, x[s, entry], False, 0.0, half)
            gemm(1.0, half, False, vectors[s], True, 0.0, x[s, entry])
        scale_blocks(1.0, form[s : s + 1], x[s])
        if not logm_blocks(x[s], y[s]):
            return False
        gemm(1.0, vectors[s], True, y[s, -1], False, 0.0, half)
        gemm(1.0, half, False, vectors[s], False, 0.0, y[s, -1])
    last_entries(y, 0, out)
    return True
