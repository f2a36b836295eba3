"""Sylvester's equation A X + X B = C, by Schur forms of A and B and substitution (Bartels and
Stewart 1972).

A Schur form, T = V* A V upper triangular for a unitary V, is complex also for real A, so that it
has no diagonal blocks of two rows. It is computed by reduction to Hessenberg form and QR steps with
Wilkinson's shift (Golub and Van Loan, Matrix Computations, 7.4 and 7.5), all by rotations. The
threads of a block share the rows and columns that a rotation changes; each thread computes the
rotation itself."""

# mypy: allow-untyped-defs

import cmath
import math

import numpy as np
from numba import cuda

from .base import device, kernel
from .blas import gemm, product
from .copies import copied, copy_stack
from .norms import largest_entry, power_below, precision_of


@device
def rotation(a, b):
    """A real c and a complex s such that [[c, s], [-s*, c]] maps (a, b) to (r, 0)."""
    a_size, b_size = math.hypot(a.real, a.imag), math.hypot(b.real, b.imag)
    length = math.hypot(a_size, b_size)
    if not b_size > 0:
        return 1.0, 0j
    if not a_size > 0:
        return 0.0, b.conjugate() / b_size
    return a_size / length, (a / a_size) * (b.conjugate() / length)


@device
def rotate(h, q, i, k, cleared, c, s):
    """Multiply rows i and k of h by a rotation, and columns i and k of h and q by its inverse. Sets
    h[k, cleared], which the rotation makes zero, to 0 exactly; nothing if `cleared` is negative."""
    opposite = s.conjugate()
    cuda.syncthreads()
    for j in range(cuda.threadIdx.x, h.shape[0], cuda.blockDim.x):
        x, y = h[i, j], h[k, j]
        h[i, j] = c * x + s * y
        h[k, j] = c * y - opposite * x if j != cleared else 0j
    cuda.syncthreads()
    for j in range(cuda.threadIdx.x, h.shape[0], cuda.blockDim.x):
        x, y = h[j, i], h[j, k]
        h[j, i] = c * x + opposite * y
        h[j, k] = c * y - s * x
        x, y = q[j, i], q[j, k]
        q[j, i] = c * x + opposite * y
        q[j, k] = c * y - s * x
    cuda.syncthreads()


@device
def wilkinson_shift(a, b, c, d):
    """The eigenvalue of [[a, b], [c, d]] that is closer to d."""
    half = (a - d) / 2.0
    root = cmath.sqrt(half * half + b * c)
    if half.real * root.real + half.imag * root.imag < 0:
        root = -root
    divisor = half + root
    if divisor == 0:
        return d + 0j
    return d - b * c / divisor


@device
def is_negligible(h, k, precision):
    """Check whether the subdiagonal entry in row k is negligible relative to the diagonal entries
    next to it."""
    diagonal = abs(h[k - 1, k - 1]) + abs(h[k, k])
    return abs(h[k, k - 1]) <= precision * (diagonal if diagonal > 0 else 1.0)


@device
def triangular_form(h, q, precision):
    """Transform h, with entries of size 1 at most, to upper triangular form, and multiply q by the
    transformation from the right. Returns whether the iteration converges."""
    n = h.shape[0]
    for column in range(n - 2):
        for row in range(column + 2, n):
            c, s = rotation(h[column + 1, column], h[row, column])
            rotate(h, q, column + 1, row, column, c, s)
    stop = n - 1
    count = 0
    while stop > 0:
        start = stop
        while start > 0 and not is_negligible(h, start, precision):
            start -= 1
        if start > 0:
            h[start, start - 1] = 0j
        if start == stop:
            stop -= 1
            count = 0
        elif count == 30 * max(n, 10):
            return False
        else:
            count += 1
            if count % 10 == 0:  # an exceptional shift, in case Wilkinson's does not converge
                shift = h[stop, stop] + 0.75 * abs(h[stop, stop - 1])
            else:
                shift = wilkinson_shift(
                    h[stop - 1, stop - 1], h[stop - 1, stop], h[stop, stop - 1], h[stop, stop]
                )
            x, y = h[start, start] - shift, h[start + 1, start]
            for k in range(start, stop):
                if k > start:
                    x, y = h[k, k - 1], h[k + 1, k - 1]
                c, s = rotation(x, y)
                rotate(h, q, k, k + 1, k - 1 if k > start else -1, c, s)
    return True


@kernel("real[:, :, ::1], complex128[:, :, ::1], complex128[:, :, ::1], float64, int32[::1], int64")
def schur_forms(a, form, vectors, precision, failures, failure):
    """`schur`, a block for each matrix."""
    n = a.shape[1]
    for s in range(cuda.blockIdx.x, a.shape[0], cuda.gridDim.x):
        h, q = form[s], vectors[s]
        largest = largest_entry(a[s])
        is_finite = largest < math.inf
        factor = power_below(largest) if is_finite else 1.0
        for place in range(cuda.threadIdx.x, n * n, cuda.blockDim.x):
            i, j = place // n, place % n
            h[i, j] = factor * a[s, i, j] if is_finite else 0.0
            q[i, j] = 1.0 if i == j else 0.0
        cuda.syncthreads()
        converged = triangular_form(h, q, precision)
        if cuda.threadIdx.x == 0 and not (converged and is_finite):
            failures[failure] = 1
        cuda.syncthreads()
        for place in range(cuda.threadIdx.x, n * n, cuda.blockDim.x):
            i, j = place // n, place % n
            h[i, j] = h[i, j] / factor if i <= j else 0j


def schur(run, a, form, vectors, failure):
    """Compute a Schur form a = v t v* of each matrix of `a` (stack, n, n): t = form is upper
    triangular, v = vectors unitary, both complex. Fails where an entry is not finite, or the
    iteration does not converge."""
    stack, n, _ = a.shape
    arguments = precision_of(np.float64), run.failures, failure
    run.launch_matrices(schur_forms, stack, n, a, form, vectors, *arguments)


def schur_of(run, a, failure):
    """`schur` in new arrays: forms and vectors."""
    form, vectors = run.empty(a.shape, np.complex128), run.empty(a.shape, np.complex128)
    schur(run, a, form, vectors, failure)
    return form, vectors


# Other bases


def in_basis_of(run, left, a, right, out):
    """out = left* A right, for a real A (stack, n, m)."""
    half = product(run, left, True, copied(run, a, np.complex128), False)
    gemm(run, 1.0, half, False, right, False, 0.0, out)


def from_basis(run, left, inner, right, out):
    """out = left inner right*, which is real; `inner` is (stack, n, m)."""
    half = product(run, left, False, inner, False)
    copy_stack(run, product(run, half, False, right, True), out)


# Equations


@device
def entry_of(a, transposed, i, j):
    """Entry i, j of a matrix, or of its conjugate transpose."""
    return a[j, i].conjugate() if transposed else a[i, j]


@device
def substitute_sylvester(a, b, y, a_transposed, b_transposed, min_pivot):
    """Replace y (n, m) by the X with op(A) X + X op(B) = y for upper triangular A and B, by the
    threads of a block, antidiagonal by antidiagonal: entries of one do not depend on each other.
    Returns whether all pivots of this thread exceed `min_pivot`."""
    n, m = y.shape
    is_regular = True
    for wave in range(n + m - 1):
        for row in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            column = wave - row
            if column >= 0 and column < m:
                i = row if a_transposed else n - 1 - row
                j = m - 1 - column if b_transposed else column
                total = y[i, j]
                for step in range(row):
                    k = step if a_transposed else n - 1 - step
                    total -= entry_of(a, a_transposed, i, k) * y[k, j]
                for step in range(column):
                    k = m - 1 - step if b_transposed else step
                    total -= y[i, k] * entry_of(b, b_transposed, k, j)
                pivot = entry_of(a, a_transposed, i, i) + entry_of(b, b_transposed, j, j)
                if not abs(pivot) > min_pivot:
                    is_regular = False
                    pivot += 1.0
                y[i, j] = total / pivot
        cuda.syncthreads()
    return is_regular


@kernel(
    "complex128[:, :, ::1], complex128[:, :, ::1], complex128[:, :, ::1], int64, int64, float64, "
    "int32[::1], int64"
)
def substitute_stack(a, b, y, a_transposed, b_transposed, precision, failures, failure):
    """`substitute_sylvester` for a stack, a block for each."""
    for s in range(cuda.blockIdx.x, y.shape[0], cuda.gridDim.x):
        min_pivot = precision * max(largest_entry(a[s]), largest_entry(b[s]))
        if not substitute_sylvester(
            a[s], b[s], y[s], a_transposed != 0, b_transposed != 0, min_pivot
        ):
            failures[failure] = 1


def solve_triangular_sylvester(run, a, b, y, a_transposed, b_transposed, precision, failure):
    """Launch `substitute_stack`. Fails where a pivot is negligible relative to the entries of A and
    B, up to the given precision."""
    stack, n, m = y.shape
    flags = int(bool(a_transposed)), int(bool(b_transposed)), precision, run.failures, failure
    run.launch_matrices(substitute_stack, stack, n if m else 0, a, b, y, *flags)


def schur_sylvester(
    run, a_form, a_vectors, b_form, b_vectors, c, out, a_transposed, b_transposed, failure
):
    """out (stack, n, m) = the X with A X + X B = C, from Schur forms of A and B, or of their
    transposes if `a_transposed`, `b_transposed`. Fails where A and -B share an eigenvalue."""
    y = run.empty(c.shape, np.complex128)
    in_basis_of(run, a_vectors, c, b_vectors, y)
    settings = a_transposed, b_transposed, precision_of(out.dtype), failure
    solve_triangular_sylvester(run, a_form, b_form, y, *settings)
    from_basis(run, a_vectors, y, b_vectors, out)
