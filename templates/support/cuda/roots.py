"""Principal square roots by a Schur form (Björck and Hammarling 1983)."""

# mypy: allow-untyped-defs

import cmath

import numpy as np
from numba import cuda

from .base import device, kernel
from .frechet import widened
from .norms import largest_entry, precision_of
from .sylvester import from_basis, schur, substitute_sylvester


@kernel("complex128[:, :, ::1], float64, int32[::1], int64")
def require_principal(form, precision, failures, failure):
    """Fail where an eigenvalue on the diagonal of a Schur form (stack, n, n) lies on the closed
    negative real axis, up to rounding errors of the given precision."""
    stack, n, _ = form.shape
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        rounding = n * precision * largest_entry(form[s])
        for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            value = form[s, i, i]
            if not (value.real > rounding or abs(value.imag) > rounding):
                failures[failure] = 1


def principal_schur(run, a, form, precision, failure):
    """form = Schur forms of `a` (stack, n, n); returns their vectors. Fails where there is none, or
    an eigenvalue lies on the closed negative real axis, up to rounding errors of the given
    precision."""
    stack, n, _ = a.shape
    vectors = run.empty(a.shape, np.complex128)
    schur(run, a, form, vectors, failure)
    run.launch_matrices(require_principal, stack, n, form, precision, run.failures, failure)
    return vectors


@device
def root_of_triangle(x):
    """Replace an upper triangular matrix by the principal square root, by the threads of a block:
    diagonal by diagonal."""
    n = x.shape[0]
    for distance in range(n):
        for i in range(cuda.threadIdx.x, n - distance, cuda.blockDim.x):
            j = i + distance
            total = x[i, j]
            for k in range(i + 1, j):
                total -= x[i, k] * x[k, j]
            x[i, j] = total / (x[i, i] + x[j, j]) if i < j else cmath.sqrt(total)
        cuda.syncthreads()


@device
def subtract_products(x, s, mask):
    """Subtract from entry `mask` of the Fréchet blocks x (2**k, stack, n, n), for matrix s, all
    products of two other entries that contribute to it."""
    n = x.shape[2]
    for task in range(cuda.threadIdx.x, n * n, cuda.blockDim.x):
        i, j = task // n, task % n
        total = 0j
        part = (mask - 1) & mask
        while part > 0:
            for k in range(n):
                total += x[part, s, i, k] * x[mask ^ part, s, k, j]
            part = (part - 1) & mask
        x[mask, s, i, j] -= total
    cuda.syncthreads()


@device
def replace_by_root(x, s):
    """Replace Fréchet blocks with an upper triangular first entry by their principal square root,
    by the threads of a block. Returns whether all pivots of this thread are nonzero.

    With R the root of the first entry and Y that of another one, R Y + Y R is known: the entry
    without the products of other roots.
    """
    root = x[0, s]
    fine = True
    root_of_triangle(root)
    for mask in range(1, x.shape[0]):
        subtract_products(x, s, mask)
        fine &= substitute_sylvester(root, root, x[mask, s], False, False, 0.0)
    return fine


@device
def far_from_identity(a):
    """Check whether the 1-norm of A - I exceeds 1/4."""
    far = False
    for j in range(a.shape[1]):
        total = 0.0
        for i in range(a.shape[0]):
            total += abs(a[i, j] - (1.0 if i == j else 0.0))
        far |= total > 0.25
    return far


@kernel("complex128[:, :, :, ::1], int64, int64, int32[::1], int32[::1], int64")
def take_roots(x, min_roots, max_roots, roots, failures, failure):
    """Take square roots of Fréchet blocks x (2**k, stack, n, n) with upper triangular first entries
    until these are close to the identity, but at least `min_roots` and at most `max_roots`;
    roots[s] = their number. Fails where a root is singular, or the last is not close to the
    identity."""
    for s in range(cuda.blockIdx.x, x.shape[1], cuda.gridDim.x):
        count = 0
        fine = True
        far = far_from_identity(x[0, s])
        while count < min_roots or (far and count < max_roots):
            cuda.syncthreads()
            fine &= replace_by_root(x, s)
            count += 1
            far = far_from_identity(x[0, s])
        if not fine or (far and count > min_roots):
            failures[failure] = 1
        if cuda.threadIdx.x == 0:
            roots[s] = count


def roots_of_blocks(run, x, min_roots, max_roots, failure):
    """Launch `take_roots`; returns the numbers of roots."""
    _, stack, n, _ = x.shape
    roots = run.empty((stack,), np.int32)
    arguments = min_roots, max_roots, roots, run.failures, failure
    run.launch_matrices(take_roots, stack, n, x, *arguments)
    return roots


def sqrtm(run, a, out, failure):
    """out (stack, n, n) = the principal square root. It fails where an eigenvalue of A lies on the
    closed negative real axis."""
    stack, n, _ = a.shape
    run = run.in_double()
    block = run.empty((1, stack, n, n), np.complex128)
    form = run.part(block, 0)
    vectors = principal_schur(run, widened(run, a), form, precision_of(out.dtype), failure)
    roots_of_blocks(run, block, 1, 1, failure)
    from_basis(run, vectors, form, vectors, out)
