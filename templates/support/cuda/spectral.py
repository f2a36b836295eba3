"""Symmetric eigenvalues and singular values by cuSOLVER, called through CuPy."""

# mypy: allow-untyped-defs

import math

from numba import cuda

from .base import _cupy, kernel, position
from .libraries import MAX_BATCHED_ROWS
from .norms import leading_sign


@kernel("real[:, :, ::1], real[:, :, ::1], int32[::1], int64")
def keep_finite(a, out, failures, failure):
    """out = a, with 0 for entries that are not finite, for which the check fails: cuSOLVER may
    iterate forever on such matrices."""
    for number in range(cuda.grid(1), a.size, cuda.gridsize(1)):
        s, i, j = position(number, a.shape)
        value = a[s, i, j]
        if not abs(value) < math.inf:
            failures[failure] = 1
            value = a.dtype.type(0)
        out[s, i, j] = value


@kernel("real[:, :, ::1], real[:, :, ::1], int64, int32[::1], int64")
def sign_pairs(u, v, paired, failures, failure):
    """Multiply each column of u (stack, p, k), and of v (stack, q, k) if `paired`, by 1 or -1 so
    that the first of the largest entries in u is positive. Fails where an entry is nan."""
    stack, rows, count = u.shape
    for place in range(cuda.grid(1), stack * count, cuda.gridsize(1)):
        s, j = place // count, place % count
        sign = leading_sign(u[s, :, j])
        for i in range(rows):
            if u[s, i, j] != u[s, i, j]:
                failures[failure] = 1
            u[s, i, j] *= sign
        if paired:
            for i in range(v.shape[1]):
                v[s, i, j] *= sign


def finite_copy(run, a, failure):
    """Copy an array to one of CuPy's. Fails where an entry is not finite."""
    usable = run.empty(a.shape)
    run.launch(keep_finite, a.size, a, usable, run.failures, failure)
    return _cupy.asarray(usable)


def eigen_by_library(run, a, values, vectors, failure):
    """`symmetric_eigen`; only values where `vectors` is None."""
    stack, n = values.shape
    if stack == 0:
        return
    matrices = finite_copy(run, a, failure)
    indices = range(stack) if stack == 1 or n > MAX_BATCHED_ROWS else [slice(None)]
    for s in indices:
        if vectors is None:
            _cupy.asarray(values)[s] = _cupy.linalg.eigvalsh(matrices[s])
        else:
            decomposition = _cupy.linalg.eigh(matrices[s])
            _cupy.asarray(values)[s], _cupy.asarray(vectors)[s] = decomposition
    if vectors is not None:
        run.launch(sign_pairs, stack * n, vectors, vectors, 0, run.failures, failure)


def singular_by_library(run, a, u, s, v, failure):
    """`singular_vectors`; only values where u and v are None."""
    if s.size == 0:
        return
    matrices = finite_copy(run, a, failure)
    if u is None:
        _cupy.asarray(s)[...] = _cupy.linalg.svd(matrices, compute_uv=False)
        return
    decomposition = _cupy.linalg.svd(matrices, full_matrices=False)
    _cupy.asarray(u)[...], _cupy.asarray(s)[...] = decomposition[:2]
    _cupy.asarray(v)[...] = decomposition[2].swapaxes(1, 2)
    run.launch(sign_pairs, s.size, u, v, 1, run.failures, failure)
