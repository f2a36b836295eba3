"""A X + X B = C by Bartels and Stewart (1972): Schur forms of A and B, then substitution.

A Schur form, T = V* A V upper triangular for a unitary V, is complex for real A too, so that no
diagonal block has two rows. It is found by reduction to Hessenberg form and QR steps with
Wilkinson's shift (Golub and Van Loan, Matrix Computations, 7.4 and 7.5), all by rotations. The
threads of a block share the rows and columns that a rotation changes; each thread computes the
rotation itself.
"""

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
    """A real c and an s for which [[c, s], [-s*, c]] takes (a, b) to (r, 0)."""
    first, second = math.hypot(a.real, a.imag), math.hypot(b.real, b.imag)
    length = math.hypot(first, second)
    if not second > 0:
        return 1.0, 0j
    if not first > 0:
        return 0.0, b.conjugate() / second
    return first / length, (a / first) * (b.conjugate() / length)


@device
def rotate(h, q, i, k, cleared, c, s):
    """Multiply rows i and k of h by a rotation, and the same columns of h and of q by its inverse.
    What it makes zero is in row k and column `cleared`, if that is not negative."""
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
def separate(h, k, precision):
    """Whether the entry left of the diagonal in row k is negligible, relative to the entries of the
    diagonal beside it."""
    around = abs(h[k - 1, k - 1]) + abs(h[k, k])
    return abs(h[k, k - 1]) <= precision * (around if around > 0 else 1.0)


@device
def triangular_form(h, q, precision):
    """Make h, with entries of size 1 at most, upper triangular; q is multiplied from the right.
    Whether the iteration converges."""
    n = h.shape[0]
    for column in range(n - 2):
        for row in range(column + 2, n):
            c, s = rotation(h[column + 1, column], h[row, column])
            rotate(h, q, column + 1, row, column, c, s)
    last = n - 1
    count = 0
    while last > 0:
        first = last
        while first > 0 and not separate(h, first, precision):
            first -= 1
        if first > 0:
            h[first, first - 1] = 0j
        if first == last:
            last -= 1
            count = 0
        elif count == 30 * max(n, 10):
            return False
        else:
            count += 1
            if count % 10 == 0:
                shift = h[last, last] + 0.75 * abs(h[last, last - 1])
            else:
                shift = wilkinson_shift(
                    h[last - 1, last - 1], h[last - 1, last], h[last, last - 1], h[last, last]
                )
            x, y = h[first, first] - shift, h[first + 1, first]
            for k in range(first, last):
                if k > first:
                    x, y = h[k, k - 1], h[k + 1, k - 1]
                c, s = rotation(x, y)
                rotate(h, q, k, k + 1, k - 1 if k > first else -1, c, s)
    return True


@kernel("real[:, :, ::1], complex128[:, :, ::1], complex128[:, :, ::1], float64, int32[::1], int64")
def schur_forms(a, form, vectors, precision, failures, failure):
    """`schur`, by a block for each matrix."""
    n = a.shape[1]
    for s in range(cuda.blockIdx.x, a.shape[0], cuda.gridDim.x):
        h, q = form[s], vectors[s]
        largest = largest_entry(a[s])
        usable = largest < math.inf
        factor = power_below(largest) if usable else 1.0
        for place in range(cuda.threadIdx.x, n * n, cuda.blockDim.x):
            i, j = place // n, place % n
            h[i, j] = factor * a[s, i, j] if usable else 0.0
            q[i, j] = 1.0 if i == j else 0.0
        cuda.syncthreads()
        done = triangular_form(h, q, precision)
        if cuda.threadIdx.x == 0 and not (done and usable):
            failures[failure] = 1
        cuda.syncthreads()
        for place in range(cuda.threadIdx.x, n * n, cuda.blockDim.x):
            i, j = place // n, place % n
            h[i, j] = h[i, j] / factor if i <= j else 0j


def schur(run, a, form, vectors, failure):
    """Schur form of each matrix of `a` (stack, n, n): a = v t v* for t = form, upper triangular,
    and v = vectors, unitary, both complex. It fails where an entry is not finite, or the iteration
    does not converge."""
    stack, n, _ = a.shape
    last = precision_of(np.float64), run.failures, failure
    run.each_matrix(schur_forms, stack, n, a, form, vectors, *last)


def schur_of(run, a, failure):
    """New arrays: Schur forms and their vectors."""
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
def entry_of(a, turned, i, j):
    """Entry i, j of a matrix, or of its conjugate transpose."""
    return a[j, i].conjugate() if turned else a[i, j]


@device
def substitute_sylvester(a, b, y, a_turned, b_turned, least):
    """Replace y (n, m) by the X with op(A) X + X op(B) = y for upper triangular A and B, by the
    threads of a block: all entries at once that do not wait for each other. Whether no pivot of
    this thread was `least` or smaller."""
    n, m = y.shape
    fine = True
    for wave in range(n + m - 1):
        for row in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            column = wave - row
            if column >= 0 and column < m:
                i = row if a_turned else n - 1 - row
                j = m - 1 - column if b_turned else column
                total = y[i, j]
                for step in range(row):
                    k = step if a_turned else n - 1 - step
                    total -= entry_of(a, a_turned, i, k) * y[k, j]
                for step in range(column):
                    k = m - 1 - step if b_turned else step
                    total -= y[i, k] * entry_of(b, b_turned, k, j)
                pivot = entry_of(a, a_turned, i, i) + entry_of(b, b_turned, j, j)
                if not abs(pivot) > least:
                    fine = False
                    pivot += 1.0
                y[i, j] = total / pivot
        cuda.syncthreads()
    return fine


@kernel(
    "complex128[:, :, ::1], complex128[:, :, ::1], complex128[:, :, ::1], int64, int64, float64, "
    "int32[::1], int64"
)
def substitute_stack(a, b, y, a_turned, b_turned, precision, failures, failure):
    """`substitute_sylvester` for a stack, by a block for each."""
    for s in range(cuda.blockIdx.x, y.shape[0], cuda.gridDim.x):
        least = precision * max(largest_entry(a[s]), largest_entry(b[s]))
        if not substitute_sylvester(a[s], b[s], y[s], a_turned != 0, b_turned != 0, least):
            failures[failure] = 1


def solve_triangular_sylvester(run, a, b, y, a_turned, b_turned, precision, failure):
    """Launch `substitute_sylvester`. It fails where a pivot is negligible, relative to the
    entries of A and B, in numbers of this precision."""
    stack, n, m = y.shape
    flags = int(bool(a_turned)), int(bool(b_turned)), precision, run.failures, failure
    run.each_matrix(substitute_stack, stack, n if m else 0, a, b, y, *flags)


def schur_sylvester(
    run, a_form, a_vectors, b_form, b_vectors, c, out, left_turned, right_turned, failure
):
    """out (stack, n, m) = the X of A X + X B = C, from Schur forms of A and B, or of their
    transposes where these are turned. It fails where A and -B share an eigenvalue, so that the
    equation is singular."""
    y = run.empty(c.shape, np.complex128)
    in_basis_of(run, a_vectors, c, b_vectors, y)
    last = left_turned, right_turned, precision_of(out.dtype), failure
    solve_triangular_sylvester(run, a_form, b_form, y, *last)
    from_basis(run, a_vectors, y, b_vectors, out)
