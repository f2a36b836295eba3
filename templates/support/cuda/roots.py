"""Principal square roots, in the basis of a real Schur form (Higham 1987)."""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import THREADS, device, kernel, power_of_two
from .blas import gemm
from .blocks import blocks_for, entries
from .jacobi import precision_of
from .jets import part_of, widened
from .norms import largest_size, row_sizes
from .quasi import coupled, in_order, solve_block
from .sylvester import schur


@kernel("float64[:, :, ::1], float64[:, ::1], float64, int32[::1], int64")
def require_principal(form, sizes, precision, failures, failure):
    """It fails where a matrix with a real Schur form in `form` (stack, n, n) has an eigenvalue on
    the closed negative real axis, within rounding errors of numbers of this precision."""
    stack, n, _ = form.shape
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        row_sizes(form[s], sizes[s])
        cuda.syncthreads()
        least = n * precision * largest_size(sizes[s], n)
        for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            apart = 0.0
            if coupled(form[s], i):
                apart = -form[s, i, i - 1] * form[s, i - 1, i]
            if coupled(form[s], i + 1):
                apart = -form[s, i + 1, i] * form[s, i, i + 1]
            if not (form[s, i, i] > least or apart > least * least):
                failures[failure] = 1
        cuda.syncthreads()


def principal_schur(run, a, precision, failure):
    """New arrays: real Schur forms of `a` (stack, n, n) and their vectors, in double precision as
    all is here. It fails where there is none, or an eigenvalue lies on the closed negative real
    axis, within rounding errors of numbers of this precision."""
    stack, n, _ = a.shape
    form, vectors = run.empty(a.shape), run.empty(a.shape)
    schur(run, a, form, vectors, failure)
    blocks = blocks_for(stack, 1) if n > 0 else 0
    last = run.empty((stack, n)), precision, run.failures, failure
    run.launch(require_principal, blocks, power_of_two(n, THREADS), form, *last)
    return form, vectors


@device
def root_of_block(a, row, wide):
    """Replace the diagonal block of `wide` rows that begins at `row` by its principal root."""
    real = a[row, row]
    if wide == 1:
        a[row, row] = math.sqrt(real)
    else:
        below, above = a[row + 1, row], a[row, row + 1]
        squared = -above * below
        modulus = math.hypot(real, math.sqrt(squared))
        other = squared / (modulus - real) if real < 0 else modulus + real  # no cancellation
        half = math.sqrt(other / 2)
        a[row, row] = half
        a[row + 1, row + 1] = half
        a[row, row + 1] = above / (2 * half)
        a[row + 1, row] = below / (2 * half)


@device
def reduce_root(x, s, mask, first, high, left, wide):
    """Take off a block of entry `mask` of the jets x, in matrix s, what is known of the square of
    its root there."""
    n = x.shape[2]
    for i in range(first, first + high):
        for j in range(left, left + wide):
            total = 0.0
            for k in range(first + high, left if mask == 0 else n):
                total += x[0, s, i, k] * x[mask, s, k, j]
            if mask > 0:
                for k in range(left):
                    total += x[mask, s, i, k] * x[0, s, k, j]
            x[mask, s, i, j] -= total


@device
def subtract_products(x, s, mask):
    """Take off entry `mask` of the jets x (2**k, stack, n, n), in matrix s, all products of two
    other entries that are of this one."""
    n = x.shape[2]
    for task in range(cuda.threadIdx.x, n * n, cuda.blockDim.x):
        i, j = task // n, task % n
        total = 0.0
        part = (mask - 1) & mask
        while part > 0:
            for k in range(n):
                total += x[part, s, i, k] * x[mask ^ part, s, k, j]
            part = (part - 1) & mask
        x[mask, s, i, j] -= total


@device
def root_of_jet(x, s):
    """Replace a jet whose first entry is upper quasi-triangular, in LAPACK's standard form, by its
    principal square root, by the threads of a block. Whether nothing this thread has solved for is
    singular.

    With R the root of the first entry, Y that of another, R Y + Y R is known; of R itself, what is
    above the diagonal is found in the same way and order.
    """
    n = x.shape[2]
    root = x[0, s]
    fine = True
    for mask in range(x.shape[0]):
        if mask > 0:
            subtract_products(x, s, mask)
        cuda.syncthreads()
        for wave in range(max(n - 2, 0) if mask == 0 else 0, 2 * n - 1):
            for position in range(cuda.threadIdx.x, n, cuda.blockDim.x):
                left = wave - position
                first, high = in_order(root, position, False)
                if left >= 0 and left < n and high > 0 and not coupled(root, left):
                    wide = 2 if coupled(root, left + 1) else 1
                    if mask == 0 and first == left:
                        root_of_block(root, first, wide)
                    elif mask > 0 or first < left:
                        reduce_root(x, s, mask, first, high, left, wide)
                        y = x[mask, s]
                        fine &= solve_block(
                            root, root, y, first, left, high, wide, False, False, 0.0
                        )
            cuda.syncthreads()
    return fine


@device
def far_from_identity(a, sums):
    """Whether the 1-norm of A - I is more than 1/4, for all threads of a block."""
    n = a.shape[0]
    for j in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        total = 0.0
        for i in range(n):
            total += abs(a[i, j] - 1.0 if i == j else a[i, j])
        sums[j] = total
    cuda.syncthreads()
    far = largest_size(sums, n) > 0.25
    cuda.syncthreads()
    return far


@kernel("float64[:, :, :, ::1], float64[:, ::1], int64, int64, int32[::1], int32[::1], int64")
def take_roots(x, sums, fewest, most, roots, failures, failure):
    """Take square roots of jets x (2**k, stack, n, n), whose first entries are upper
    quasi-triangular, at least `fewest`, and more until they are close to the identity, but no more
    than `most`; roots[s] = how often. It fails where one is singular, or none is close."""
    for s in range(cuda.blockIdx.x, x.shape[1], cuda.gridDim.x):
        count = 0
        fine = True
        far = far_from_identity(x[0, s], sums[s])
        while count < fewest or (far and count < most):
            fine &= root_of_jet(x, s)
            count += 1
            far = far_from_identity(x[0, s], sums[s])
        if not fine or (far and count > fewest):
            failures[failure] = 1
        if cuda.threadIdx.x == 0:
            roots[s] = count


def jet_roots(run, x, fewest, most, failure):
    """Launch `take_roots`: how often roots were taken."""
    _, stack, n, _ = x.shape
    roots = run.empty((stack,), np.int32)
    blocks = blocks_for(stack, 1) if n > 0 else 0
    last = run.empty((stack, n)), fewest, most, roots, run.failures, failure
    run.launch(take_roots, blocks, power_of_two(n, THREADS), x, *last)
    return roots


def in_basis_of(run, vectors, a):
    """New arrays V' A V."""
    half, result = run.empty(a.shape), run.empty(a.shape)
    gemm(run, 1.0, vectors, True, a, False, 0.0, half)
    gemm(run, 1.0, half, False, vectors, False, 0.0, result)
    return result


def from_basis(run, vectors, inner, out):
    """out = V inner V', in the precision of `out`; `inner` is overwritten."""
    half = run.empty(inner.shape)
    gemm(run, 1.0, vectors, False, inner, False, 0.0, half)
    gemm(run, 1.0, half, False, vectors, True, 0.0, inner)
    run.launch(part_of, *entries(out.size), inner, 0, 0, out)


def sqrtm(run, a, out, failure):
    """out (stack, n, n) = the principal square root. It fails where an eigenvalue of A lies on the
    closed negative real axis."""
    stack, n, _ = a.shape
    run = run.in_double()
    form, vectors = principal_schur(run, widened(run, a), precision_of(out.dtype), failure)
    jet_roots(run, form.reshape(1, stack, n, n), 1, 1, failure)
    from_basis(run, vectors, form, out)
