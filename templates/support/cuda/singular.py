"""Singular values and vectors; the polar factor and the nuclear norm.

One-sided Jacobi's method (Hestenes 1958) rotates pairs of columns of a matrix, or of rows if these
are fewer, until all are orthogonal. The pairs of a round have no row in common, so that a thread
rotates each at the same time (Brent and Luk 1985). Large matrices are left to cuSOLVER."""

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

MAX_SWEEPS = 60
"""Largest number of sweeps over all pairs; most often fewer than ten converge."""


@device
def round_pair(turn, pair, players):
    """The rows (low, high) of a pair in a round, as in a tournament of an even number of players,
    where every two meet once in players - 1 rounds."""
    rounds = players - 1
    first = (turn + pair) % rounds
    second = (turn - pair + rounds) % rounds
    if pair == 0:
        second = rounds
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
def orthogonalise_pair(w, basis, with_vectors, first, second, precision, min_square):
    """Rotate two rows of w so that they are orthogonal, and those of `basis` if `with_vectors`.
    Returns 1 if they were not orthogonal before, else 0."""
    one = w.dtype.type(1)
    x_square = w.dtype.type(0)
    y_square = w.dtype.type(0)
    inner = w.dtype.type(0)
    for i in range(w.shape[1]):
        x, y = w[first, i], w[second, i]
        x_square += x * x
        y_square += y * y
        inner += x * y
    if not (x_square > min_square and y_square > min_square):
        return 0
    if not abs(inner) > precision * math.sqrt(x_square) * math.sqrt(y_square):
        return 0
    tangent = rotation_tangent(y_square - x_square, inner + inner)
    cosine = one / math.sqrt(one + tangent * tangent)
    rotate_rows(w, first, second, cosine, tangent * cosine)
    if with_vectors:
        rotate_rows(basis, first, second, cosine, tangent * cosine)
    return 1


@device
def orthogonalise_rows(w, basis, with_vectors, precision, min_square):
    """Rotate pairs of rows of w, and of `basis` if `with_vectors`, until all rows of w are
    orthogonal whose squared length exceeds `min_square`. Returns whether the iteration
    converges."""
    half = (w.shape[0] + 1) // 2
    sweep = 0
    not_orthogonal = 1
    while not_orthogonal > 0 and sweep < MAX_SWEEPS:
        sweep += 1
        rotated = 0
        for turn in range(2 * half - 1):
            for pair in range(cuda.threadIdx.x, half, cuda.blockDim.x):
                first, second = round_pair(turn, pair, 2 * half)
                if second < w.shape[0]:
                    rotated |= orthogonalise_pair(
                        w, basis, with_vectors, first, second, precision, min_square
                    )
            cuda.syncthreads()
        not_orthogonal = cuda.syncthreads_or(rotated)
    return not_orthogonal == 0


@device
def add_orthonormal_row(w, row):
    """Replace a zero row of w by a unit vector orthogonal to all other rows, which are orthonormal
    or zero: the coordinate vector farthest from their span, orthogonalised (twice, for
    rounding)."""
    count, size = w.shape
    axis = 0
    smallest = math.inf
    for i in range(size):
        total = 0.0
        for j in range(count):
            total += w[j, i] * w[j, i]
        if total < smallest:
            smallest = total
            axis = i
    w[row, axis] = 1
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
def begin_rows(a, is_finite, factor, w, basis, with_vectors):
    """w = the columns of factor * a, or its rows if these are fewer; zero unless `is_finite`. basis
    = the identity if `with_vectors`."""
    rows, columns = a.shape
    count, size = w.shape
    for task in range(cuda.threadIdx.x, count * size, cuda.blockDim.x):
        j, i = task // size, task % size
        w[j, i] = 0
        if is_finite:
            w[j, i] = factor * (a[i, j] if rows >= columns else a[j, i])
    if with_vectors:
        for task in range(cuda.threadIdx.x, count * count, cuda.blockDim.x):
            j, i = task // count, task % count
            basis[j, i] = 1 if i == j else 0


@device
def place_of(lengths, row):
    """The rank of a length, the largest first."""
    rank = 0
    for i in range(len(lengths)):
        if lengths[i] > lengths[row] or (lengths[i] == lengths[row] and i < row):
            rank += 1
    return rank


@device
def finish_vectors(u_rows, v_rows, lengths, u, v):
    """u, v = the left and right singular vectors as columns, ordered by their singular values."""
    for j in range(cuda.threadIdx.x, len(lengths), cuda.blockDim.x):
        place = place_of(lengths, j)
        sign = leading_sign(u_rows[j])
        for i in range(u.shape[0]):
            u[i, place] = sign * u_rows[j, i]
        for i in range(v.shape[0]):
            v[i, place] = sign * v_rows[j, i]


@device
def normalise_rows(w, lengths, min_length):
    """Divide each row by its length, lengths[j]; rows no longer than `min_length` become zero."""
    for j in range(cuda.threadIdx.x, w.shape[0], cuda.blockDim.x):
        total = w.dtype.type(0)
        for i in range(w.shape[1]):
            total += w[j, i] * w[j, i]
        length = math.sqrt(total)
        lengths[j] = length
        for i in range(w.shape[1]):
            w[j, i] = w[j, i] / length if length > min_length else 0


@device
def decompose(a, u, s, v, w, basis, lengths, with_vectors, precision, min_square):
    """The singular values s of a matrix and, if `with_vectors`, its vectors u, v as columns, by the
    threads of a block. Returns whether entries are finite and the iteration converges."""
    rows, columns = a.shape
    count = w.shape[0]
    largest = largest_entry(a)
    is_finite = largest < math.inf
    factor = power_below(largest) if is_finite else 1.0
    begin_rows(a, is_finite, factor, w, basis, with_vectors)
    cuda.syncthreads()
    converged = orthogonalise_rows(w, basis, with_vectors, precision, min_square)
    normalise_rows(w, lengths, math.sqrt(min_square))
    cuda.syncthreads()
    for j in range(cuda.threadIdx.x, count, cuda.blockDim.x):
        s[place_of(lengths, j)] = lengths[j] / factor
    if with_vectors:
        if cuda.threadIdx.x == 0:
            for j in range(count):
                if not lengths[j] > math.sqrt(min_square):
                    add_orthonormal_row(w, j)
        cuda.syncthreads()
        if rows >= columns:
            finish_vectors(w, basis, lengths, u, v)
        else:
            finish_vectors(basis, w, lengths, u, v)
    cuda.syncthreads()
    return converged and is_finite


@kernel(
    "real[:, :, ::1], real[:, :, ::1], real[:, ::1], real[:, :, ::1], real[:, :, ::1], "
    "real[:, :, ::1], real[:, ::1], int64, float64, float64, int32[::1], int64"
)
def decompose_matrices(
    a, u, s, v, w, basis, lengths, with_vectors, precision, min_square, failures, failure
):
    """s (stack, k) and, if `with_vectors`, u (stack, p, k) and v (stack, q, k), a block for each
    matrix. w (stack, k, max(p, q)), basis (stack, k, k) if `with_vectors`, lengths (stack, k): work
    arrays."""
    for n in range(cuda.blockIdx.x, a.shape[0], cuda.gridDim.x):
        t = n if with_vectors else 0
        succeeded = decompose(
            a[n], u[t], s[n], v[t], w[n], basis[t], lengths[n], with_vectors, precision, min_square
        )
        if cuda.threadIdx.x == 0 and not succeeded:
            failures[failure] = 1


def array_or_placeholder(run, array):
    """The array, or for None one that a kernel takes and does not use."""
    return run.empty((1, 1, 1)) if array is None else array


def singular_by_jacobi(run, a, u, s, v, failure):
    """`singular_vectors` by Jacobi's method; only values where u and v are None."""
    stack, p, q = a.shape
    k, size = min(p, q), max(p, q)
    with_vectors = int(u is not None)
    precision = precision_of(s.dtype)
    # products of entries of shorter rows lose digits to underflow
    min_square = float(np.finfo(s.dtype).tiny) / precision
    work = run.empty((stack, k, size)), run.empty((stack if with_vectors else 1, k, k))
    settings = with_vectors, precision * math.sqrt(size), min_square, run.failures, failure
    u, v = array_or_placeholder(run, u), array_or_placeholder(run, v)
    arrays = a, u, s, v, *work, run.empty((stack, k))
    run.launch_matrices(decompose_matrices, stack, size if k else 0, *arrays, *settings)


def singular_vectors(run, a, u, s, v, failure):
    """u (stack, p, k), s (stack, k), v (stack, q, k): A = U diag(s) V', s descending; in each
    column of U the first of the largest entries is positive. Only values where u and v are None.
    Fails where an entry is not finite, or the iteration does not converge."""
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
    """`singular_vectors` in new arrays u, s, v."""
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
def divide_by_sums(s, rows, columns, inner, rounding, failures, failure):
    """Divide row i of rows (stack, k, q) and column i of columns (stack, p, k) by s[i], and entry
    i, j of inner (stack, k, k) by s[i] + s[j]. Fails where an s is zero up to rounding."""
    stack, k = s.shape
    for place in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        if cuda.threadIdx.x == 0 and not s[place, k - 1] > rounding * s[place, 0]:
            failures[failure] = 1
        for i in range(k):
            size = s[place, i]
            for j in range(cuda.threadIdx.x, rows.shape[2], cuda.blockDim.x):
                rows[place, i, j] /= size
            for j in range(cuda.threadIdx.x, columns.shape[1], cuda.blockDim.x):
                columns[place, j, i] /= size
            for j in range(cuda.threadIdx.x, k, cuda.blockDim.x):
                inner[place, i, j] /= size + s[place, j]


def solve_polar(run, a, c, out, failure):
    """out (stack, p, q) = the Y with X W' Y + Y W' X = C, for X = `a` and its polar factor W. Fails
    where X is not of full rank.

    X = U diag(s) V' decouples the equation: entry i, j of U' C V is divided by s[i] + s[j], and the
    parts of C that are orthogonal to U or to V by s."""
    u, s, v = decomposition(run, a, failure)
    (stack, p, k), q = u.shape, v.shape[1]
    rows, columns = product(run, u, True, c, False), product(run, c, False, v, False)
    inner = product(run, rows, False, v, False)
    gemm(run, -1.0, u, False, inner, False, 1.0, columns)
    gemm(run, -1.0, inner, False, v, True, 1.0, rows)
    rounding = 10 * k * precision_of(s.dtype)
    operands = rows, columns, inner, rounding, run.failures, failure
    run.launch_matrices(divide_by_sums, stack, max(p, q) if k else 0, s, *operands)
    gemm(run, 1.0, inner, False, v, True, 1.0, rows)
    gemm(run, 1.0, u, False, rows, False, 0.0, out)
    gemm(run, 1.0, columns, False, v, True, 1.0, out)
