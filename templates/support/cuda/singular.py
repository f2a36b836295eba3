"""Singular values and vectors, and what is made of them: polar factor, nuclear norm.

By Jacobi's method from one side (Hestenes 1958): the columns of the matrix, or its rows if these
are fewer, are rotated two by two until they are orthogonal. A round's pairs have no row in common,
so that all are rotated at once (Brent and Luk 1985), each by a thread. Large matrices are
cuSOLVER's.
"""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import device, kernel
from .blas import gemm, product
from .libraries import by_library
from .norms import largest_entry, leading_sign, power_below, precision_of
from .shares import SUM, reduce_rows
from .spectral import singular_by_library

SWEEPS = 60
"""The most sweeps over all pairs; it converges in less than ten."""


@device
def round_pair(turn, pair, players):
    """The places (low, high) of a pair in a round of a tournament of an even number of players:
    each meets each other once in players - 1 rounds."""
    others = players - 1
    first = (turn + pair) % others
    second = (turn - pair + others) % others
    if pair == 0:
        second = others
    return min(first, second), max(first, second)


@device
def rotation_tangent(difference, double):
    """The tangent t of the smaller angle with t^2 + 2 t z - 1 = 0 for z = difference / double,
    where `double` is not zero."""
    one = double / double
    ratio = difference / double
    root = abs(ratio) + math.sqrt(one + ratio * ratio)
    return math.copysign(one, ratio) / root


@device
def rotate_rows(w, first, second, cosine, sine):
    """Rotate two rows of a matrix."""
    for i in range(w.shape[1]):
        a, b = w[first, i], w[second, i]
        w[first, i] = cosine * a - sine * b
        w[second, i] = sine * a + cosine * b


@device
def orthogonalise_pair(w, basis, wanted, first, second, precision, least):
    """Rotate two rows of w so that they are orthogonal, and those of `basis` if `wanted`. 1 if they
    were not orthogonal before, else 0."""
    one = w.dtype.type(1)
    a = w.dtype.type(0)
    b = w.dtype.type(0)
    c = w.dtype.type(0)
    for i in range(w.shape[1]):
        x, y = w[first, i], w[second, i]
        a += x * x
        b += y * y
        c += x * y
    if not (a > least and b > least and abs(c) > precision * math.sqrt(a) * math.sqrt(b)):
        return 0
    tangent = rotation_tangent(b - a, c + c)
    cosine = one / math.sqrt(one + tangent * tangent)
    rotate_rows(w, first, second, cosine, tangent * cosine)
    if wanted:
        rotate_rows(basis, first, second, cosine, tangent * cosine)
    return 1


@device
def orthogonalise_rows(w, basis, wanted, precision, least):
    """Rotate the rows of w two by two until they are orthogonal, those shorter than the root of
    `least` aside, and the rows of `basis` with them if `wanted`. Whether the iteration
    converges."""
    half = (w.shape[0] + 1) // 2
    sweep = 0
    going = 1
    while going > 0 and sweep < SWEEPS:
        sweep += 1
        found = 0
        for turn in range(2 * half - 1):
            for pair in range(cuda.threadIdx.x, half, cuda.blockDim.x):
                first, second = round_pair(turn, pair, 2 * half)
                if second < w.shape[0]:
                    found |= orthogonalise_pair(w, basis, wanted, first, second, precision, least)
            cuda.syncthreads()
        going = cuda.syncthreads_or(found)
    return going == 0


@device
def add_orthonormal_row(w, row):
    """Make a row of w, which is zero, one of length 1 that is orthogonal to all others, which are
    orthonormal or zero: what is left of the unit vector that is farthest from them."""
    count, size = w.shape
    chosen = 0
    fewest = math.inf
    for i in range(size):
        total = 0.0
        for j in range(count):
            total += w[j, i] * w[j, i]
        if total < fewest:
            fewest = total
            chosen = i
    w[row, chosen] = 1
    for _ in range(2):
        for j in range(count):
            if j != row:
                product = w.dtype.type(0)
                for i in range(size):
                    product += w[j, i] * w[row, i]
                for i in range(size):
                    w[row, i] -= product * w[j, i]
        total = w.dtype.type(0)
        for i in range(size):
            total += w[row, i] * w[row, i]
        for i in range(size):
            w[row, i] /= math.sqrt(total)


@device
def begin_rows(a, usable, factor, w, basis, wanted):
    """w = the columns of a * factor, or its rows if these are fewer, or zero if that is not
    `usable`; basis = the identity if `wanted`."""
    rows, columns = a.shape
    count, size = w.shape
    for task in range(cuda.threadIdx.x, count * size, cuda.blockDim.x):
        j, i = task // size, task % size
        w[j, i] = 0
        if usable:
            w[j, i] = factor * (a[i, j] if rows >= columns else a[j, i])
    if wanted:
        for task in range(cuda.threadIdx.x, count * count, cuda.blockDim.x):
            j, i = task // count, task % count
            basis[j, i] = 1 if i == j else 0


@device
def place_of(lengths, row):
    """The place of a length among all, the largest first."""
    place = 0
    for i in range(len(lengths)):
        if lengths[i] > lengths[row] or (lengths[i] == lengths[row] and i < row):
            place += 1
    return place


@device
def finish_vectors(u_rows, v_rows, lengths, u, v):
    """u, v = the left and right vectors as columns, ordered by their singular values."""
    for j in range(cuda.threadIdx.x, len(lengths), cuda.blockDim.x):
        place = place_of(lengths, j)
        sign = leading_sign(u_rows[j])
        for i in range(u.shape[0]):
            u[i, place] = sign * u_rows[j, i]
        for i in range(v.shape[0]):
            v[i, place] = sign * v_rows[j, i]


@device
def normalise_rows(w, lengths, least):
    """lengths[j] = the length of row j, by which it is divided; rows of no more than `least`
    become zero."""
    for j in range(cuda.threadIdx.x, w.shape[0], cuda.blockDim.x):
        total = w.dtype.type(0)
        for i in range(w.shape[1]):
            total += w[j, i] * w[j, i]
        length = math.sqrt(total)
        lengths[j] = length
        for i in range(w.shape[1]):
            w[j, i] = w[j, i] / length if length > least else 0


@device
def decompose(a, u, s, v, w, basis, lengths, wanted, precision, least):
    """The singular values s of a matrix and, if `wanted`, its vectors u, v as columns, by the
    threads of a block. Whether entries are finite and the iteration converges."""
    rows, columns = a.shape
    count = w.shape[0]
    largest = largest_entry(a)
    usable = largest < math.inf
    factor = power_below(largest) if usable else 1.0
    begin_rows(a, usable, factor, w, basis, wanted)
    cuda.syncthreads()
    done = orthogonalise_rows(w, basis, wanted, precision, least)
    normalise_rows(w, lengths, math.sqrt(least))
    cuda.syncthreads()
    for j in range(cuda.threadIdx.x, count, cuda.blockDim.x):
        s[place_of(lengths, j)] = lengths[j] / factor
    if wanted:
        if cuda.threadIdx.x == 0:
            for j in range(count):
                if not lengths[j] > math.sqrt(least):
                    add_orthonormal_row(w, j)
        cuda.syncthreads()
        if rows >= columns:
            finish_vectors(w, basis, lengths, u, v)
        else:
            finish_vectors(basis, w, lengths, u, v)
    cuda.syncthreads()
    return done and usable


@kernel(
    "real[:, :, ::1], real[:, :, ::1], real[:, ::1], real[:, :, ::1], real[:, :, ::1], "
    "real[:, :, ::1], real[:, ::1], int64, float64, float64, int32[::1], int64"
)
def decompose_matrices(a, u, s, v, w, basis, lengths, wanted, precision, least, failures, failure):
    """s (stack, k) and, if `wanted`, u (stack, p, k) and v (stack, q, k), by a block for each
    matrix, with w (stack, k, max(p, q)), basis (stack, k, k) if `wanted`, and lengths (stack, k) to
    work in."""
    for n in range(cuda.blockIdx.x, a.shape[0], cuda.gridDim.x):
        t = n if wanted else 0
        fine = decompose(
            a[n], u[t], s[n], v[t], w[n], basis[t], lengths[n], wanted, precision, least
        )
        if cuda.threadIdx.x == 0 and not fine:
            failures[failure] = 1


def given(run, array):
    """An array for a kernel to take where there is none."""
    return run.empty((1, 1, 1)) if array is None else array


def singular_by_jacobi(run, a, u, s, v, failure):
    """`singular_vectors` by Jacobi's method; only values where u and v are None."""
    stack, p, q = a.shape
    k, size = min(p, q), max(p, q)
    wanted = int(u is not None)
    precision = precision_of(s.dtype)
    least = float(np.finfo(s.dtype).tiny) / precision
    work = run.empty((stack, k, size)), run.empty((stack if wanted else 1, k, k))
    last = wanted, precision * math.sqrt(size), least, run.failures, failure
    arrays = a, given(run, u), s, given(run, v), *work, run.empty((stack, k))
    run.each_matrix(decompose_matrices, stack, size if k else 0, *arrays, *last)


def singular_vectors(run, a, u, s, v, failure):
    """u (stack, p, k), s (stack, k), v (stack, q, k): A = U diag(s) V', descending, of each
    column of U the first of the largest entries positive; only values where u and v are None. It
    fails where an entry is not finite, or the iteration does not converge."""
    library = by_library(run, "a singular value decomposition", max(a.shape[1:]))
    (singular_by_library if library else singular_by_jacobi)(run, a, u, s, v, failure)


def singular_values(run, a, s, failure):
    """s (stack, k), descending. It fails as `singular_vectors`."""
    singular_vectors(run, a, None, s, None, failure)


def nuclear_norm(run, a, out, failure):
    """out (stack,) = the sum of the singular values. It fails as `singular_vectors`."""
    stack, p, q = a.shape
    s = run.empty((stack, min(p, q)))
    singular_values(run, a, s, failure)
    reduce_rows(run, s, out, SUM)


def decomposition(run, a, failure):
    """New arrays u, s, v of `singular_vectors`."""
    stack, p, q = a.shape
    k = min(p, q)
    u, s, v = run.empty((stack, p, k)), run.empty((stack, k)), run.empty((stack, q, k))
    singular_vectors(run, a, u, s, v, failure)
    return u, s, v


def polar_factor(run, a, out, failure):
    """out (stack, p, q) = U V' for A = U diag(s) V'. It fails as `singular_vectors`."""
    u, _, v = decomposition(run, a, failure)
    gemm(run, 1.0, u, False, v, True, 0.0, out)


@kernel(
    "real[:, ::1], real[:, :, ::1], real[:, :, ::1], real[:, :, ::1], float64, int32[::1], int64"
)
def divide_by_sums(s, left, right, inner, small, failures, failure):
    """Divide row i of left (stack, k, q) and column i of right (stack, p, k) by s[i], and entry
    i, j of inner (stack, k, k) by s[i] + s[j]. It fails where an s is zero up to rounding."""
    stack, k = s.shape
    for place in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        if cuda.threadIdx.x == 0 and not s[place, k - 1] > small * s[place, 0]:
            failures[failure] = 1
        for i in range(k):
            size = s[place, i]
            for j in range(cuda.threadIdx.x, left.shape[2], cuda.blockDim.x):
                left[place, i, j] /= size
            for j in range(cuda.threadIdx.x, right.shape[1], cuda.blockDim.x):
                right[place, j, i] /= size
            for j in range(cuda.threadIdx.x, k, cuda.blockDim.x):
                inner[place, i, j] /= size + s[place, j]


def solve_polar(run, a, c, out, failure):
    """out (stack, p, q) = the Y with X W' Y + Y W' X = C, for X = `a` and its polar factor W. It
    fails where X is not of full rank.

    X = U diag(s) V' decouples the equation: s[i] + s[j] divides entry i, j of U' C V, and s what
    of C is orthogonal to U or to V.
    """
    u, s, v = decomposition(run, a, failure)
    (stack, p, k), q = u.shape, v.shape[1]
    left, right = product(run, u, True, c, False), product(run, c, False, v, False)
    inner = product(run, left, False, v, False)
    gemm(run, -1.0, u, False, inner, False, 1.0, right)
    gemm(run, -1.0, inner, False, v, True, 1.0, left)
    small = 10 * k * precision_of(s.dtype)
    last = left, right, inner, small, run.failures, failure
    run.each_matrix(divide_by_sums, stack, max(p, q) if k else 0, s, *last)
    gemm(run, 1.0, inner, False, v, True, 1.0, left)
    gemm(run, 1.0, u, False, left, False, 0.0, out)
    gemm(run, 1.0, right, False, v, True, 1.0, out)
