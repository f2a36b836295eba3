"""A X + X B = C by Bartels and Stewart (1972): real Schur forms of A and B, then substitution.

A real Schur form T = Q' A Q is found by reduction to Hessenberg form and Francis' implicit steps
with double shifts (Golub and Van Loan, Matrix Computations, 7.4 and 7.5; deflation as Ahues and
Tisseur 1997). The threads of a block share the rotations and reflections of rows and columns; what
these are, each finds for itself, the same as the others.
"""

# mypy: allow-untyped-defs

import math

import numpy as np
from numba import cuda

from .base import THREADS, device, kernel, power_of_two
from .blas import gemm
from .blocks import blocks_for
from .jacobi import precision_of
from .norms import largest_size, row_sizes
from .quasi import substitute_sylvester


@device
def reflect_column(h, c, j, inverse, tau):
    """Reflect what is below row c in column j; the vector is below row c in column c."""
    n = h.shape[0]
    total = h.dtype.type(0)
    for i in range(c + 2, n):
        total += h[i, c] * h[i, j]
    weight = tau * (h[c + 1, j] + inverse * total)
    h[c + 1, j] -= weight
    for i in range(c + 2, n):
        h[i, j] -= weight * inverse * h[i, c]


@device
def reflect_row(h, c, a, row, inverse, tau):
    """Reflect what is right of column c in a row of `a`; the vector is below row c in column c of
    h."""
    n = h.shape[0]
    total = h.dtype.type(0)
    for i in range(c + 2, n):
        total += h[i, c] * a[row, i]
    weight = tau * (a[row, c + 1] + inverse * total)
    a[row, c + 1] -= weight
    for i in range(c + 2, n):
        a[row, i] -= weight * inverse * h[i, c]


@device
def hessenberg(h, q):
    """Make h zero below its first subdiagonal by an orthogonal transformation, with which q is
    multiplied from the right."""
    n = h.shape[0]
    real = h.dtype.type
    for c in range(n - 2):
        scale = 0.0
        for i in range(c + 2, n):
            scale = max(scale, abs(h[i, c]))
        if scale > 0:
            alpha = h[c + 1, c]
            scale = max(scale, abs(alpha))
            total = 0.0
            for i in range(c + 1, n):
                total += (h[i, c] / scale) * (h[i, c] / scale)
            beta = -math.copysign(scale * math.sqrt(total), alpha)
            tau = real((beta - alpha) / beta)
            inverse = real(1.0 / (alpha - beta))
            for j in range(c + 1 + cuda.threadIdx.x, n, cuda.blockDim.x):
                reflect_column(h, c, j, inverse, tau)
            cuda.syncthreads()
            for row in range(cuda.threadIdx.x, 2 * n, cuda.blockDim.x):
                if row < n:
                    reflect_row(h, c, h, row, inverse, tau)
                else:
                    reflect_row(h, c, q, row - n, inverse, tau)
            cuda.syncthreads()
            for i in range(c + 1 + cuda.threadIdx.x, n, cuda.blockDim.x):
                h[i, c] = beta if i == c + 1 else 0
    cuda.syncthreads()


@device
def standard_rotation(a, b, c, d, precision):
    """The rotation (cosine, sine) that makes [[a, b], [c, d]] triangular, if its eigenvalues are
    real, or else a matrix of equal diagonal entries; and the entries of that matrix."""
    cosine, sine = 1.0, 0.0
    if c == 0:
        return a, b, c, d, cosine, sine
    if b == 0:
        return d, -c, 0.0, a, 0.0, 1.0
    if a == d and (b < 0) != (c < 0):
        return a, b, c, d, cosine, sine
    half = 0.5 * (a - d)
    larger_one = max(abs(b), abs(c))
    smaller_one = math.copysign(1.0, b) * math.copysign(1.0, c) * min(abs(b), abs(c))
    scale = max(abs(half), larger_one)
    z = half / scale * half + larger_one / scale * smaller_one
    if z >= 4 * precision:
        z = half + math.copysign(math.sqrt(scale) * math.sqrt(z), half)
        length = math.hypot(c, z)
        return (
            d + z,
            b - c,
            0.0,
            d - larger_one / z * smaller_one,
            z / length,
            c / length,
        )
    total = b + c
    length = math.hypot(total, a - d)
    cosine = math.sqrt(0.5 * (1.0 + abs(total) / length))
    sine = -half / (length * cosine) * math.copysign(1.0, total)
    e, f = a * cosine + b * sine, -a * sine + b * cosine
    g, k = c * cosine + d * sine, -c * sine + d * cosine
    a, b = e * cosine + g * sine, f * cosine + k * sine
    c, d = -e * sine + g * cosine, -f * sine + k * cosine
    middle = 0.5 * (a + d)
    if c == 0:
        return middle, b, c, middle, cosine, sine
    if b == 0:
        return middle, -c, 0.0, middle, -sine, cosine
    if (b < 0) != (c < 0):
        return middle, b, c, middle, cosine, sine
    root_b, root_c = math.sqrt(abs(b)), math.sqrt(abs(c))
    apart = math.copysign(root_b * root_c, c)
    length = math.sqrt(abs(b + c))
    cosine_two, sine_two = root_b / length, root_c / length
    return (
        middle + apart,
        b - c,
        0.0,
        middle - apart,
        cosine * cosine_two - sine * sine_two,
        cosine * sine_two + sine * cosine_two,
    )


@device
def standardise(h, q, row, precision):
    """Bring the diagonal block of two rows that begins at `row` to standard form."""
    n = h.shape[0]
    real = h.dtype.type
    a, b, c, d = h[row, row], h[row, row + 1], h[row + 1, row], h[row + 1, row + 1]
    a, b, c, d, cosine, sine = standard_rotation(float(a), float(b), float(c), float(d), precision)
    cuda.syncthreads()
    turn, slide = real(cosine), real(sine)
    if cuda.threadIdx.x == 0:
        h[row, row], h[row, row + 1] = a, b
        h[row + 1, row], h[row + 1, row + 1] = c, d
    for j in range(row + 2 + cuda.threadIdx.x, n, cuda.blockDim.x):
        x, y = h[row, j], h[row + 1, j]
        h[row, j] = turn * x + slide * y
        h[row + 1, j] = turn * y - slide * x
    for i in range(cuda.threadIdx.x, row, cuda.blockDim.x):
        x, y = h[i, row], h[i, row + 1]
        h[i, row] = turn * x + slide * y
        h[i, row + 1] = turn * y - slide * x
    for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        x, y = q[i, row], q[i, row + 1]
        q[i, row] = turn * x + slide * y
        q[i, row + 1] = turn * y - slide * x
    cuda.syncthreads()


@device
def negligible(h, k, last, precision, least):
    """Whether the subdiagonal entry of row k is nothing, as seen from its neighbours."""
    size = abs(h[k, k - 1])
    if size <= least:
        return True
    around = abs(h[k - 1, k - 1]) + abs(h[k, k])
    if around == 0:
        if k >= 2:
            around += abs(h[k - 1, k - 2])
        if k < last:
            around += abs(h[k + 1, k])
    if size > precision * around:
        return False
    other = abs(h[k - 1, k])
    difference = abs(h[k - 1, k - 1] - h[k, k])
    high, low = max(abs(h[k, k]), difference), min(abs(h[k, k]), difference)
    total = high + max(size, other)
    product = min(size, other) * (max(size, other) / total)
    return product <= max(least, precision * (low * (high / total)))


@device
def active_start(h, last, precision, least):
    """The first row of the block that ends with `last` and has no negligible subdiagonal entry."""
    k = last
    while k > 0 and not negligible(h, k, last, precision, least):
        k -= 1
    return k


@device
def double_shift(h, first, last, count):
    """Two shifts, (real, imaginary) and (real, -imaginary) or the like: the eigenvalues of the
    last two rows, the closer one twice if they are real; others every tenth time."""
    if count % 20 == 10:
        size = abs(h[first + 1, first]) + abs(h[first + 2, first + 1])
        a, b, c = 0.75 * size + h[first, first], -0.4375 * size, size
        d = a
    elif count % 20 == 0:
        size = abs(h[last, last - 1]) + abs(h[last - 1, last - 2])
        a, b, c = 0.75 * size + h[last, last], -0.4375 * size, size
        d = a
    else:
        a, b = float(h[last - 1, last - 1]), float(h[last - 1, last])
        c, d = float(h[last, last - 1]), float(h[last, last])
    size = abs(a) + abs(b) + abs(c) + abs(d)
    if not size > 0:
        return 0.0, 0.0, 0.0
    a, b, c, d = a / size, b / size, c / size, d / size
    middle = (a + d) / 2
    determinant = (a - middle) * (d - middle) - b * c
    root = math.sqrt(abs(determinant))
    if determinant >= 0:
        return middle * size, middle * size, root * size
    one, other = middle + root, middle - root
    if abs(one - d) > abs(other - d):
        one = other
    return one * size, one * size, 0.0


@device
def first_column(h, row, one, other, imaginary):
    """The first entries of the column (H - shift)(H - other shift) e, from a row on."""
    size = abs(h[row, row] - other) + abs(imaginary) + abs(h[row + 1, row])
    below = h[row + 1, row] / size
    a = (
        below * h[row, row + 1]
        + (h[row, row] - one) * ((h[row, row] - other) / size)
        + imaginary * (imaginary / size)
    )
    b = below * (h[row, row] + h[row + 1, row + 1] - one - other)
    c = below * h[row + 2, row + 1]
    size = abs(a) + abs(b) + abs(c)
    return a / size, b / size, c / size


@device
def step_start(h, first, last, one, other, imaginary, precision):
    """The row where a step can begin, and the first column there: where two subdiagonal entries
    in a row are small, or else with the first row."""
    row = last - 2
    a, b, c = first_column(h, row, one, other, imaginary)
    while row > first:
        around = abs(h[row - 1, row - 1]) + abs(h[row, row]) + abs(h[row + 1, row + 1])
        if abs(h[row, row - 1]) * (abs(b) + abs(c)) <= precision * abs(a) * around:
            break
        row -= 1
        a, b, c = first_column(h, row, one, other, imaginary)
    return row, a, b, c


@device
def reflector(a, b, c):
    """beta, tau, v, w such that I - tau [1, v, w]' [1, v, w] takes [a, b, c] to [beta, 0, 0]."""
    length = math.hypot(b, c)
    if not length > 0:
        return a, 0.0, 0.0, 0.0
    beta = -math.copysign(math.hypot(a, length), a)
    return beta, (beta - a) / beta, b / (a - beta), c / (a - beta)


@device
def reflect_rows_of_three(h, k, v, w, tau, three):
    """Reflect rows k, k + 1 and, if `three`, k + 2 of h, from column k on."""
    second, third = tau * v, tau * w
    for j in range(k + cuda.threadIdx.x, h.shape[0], cuda.blockDim.x):
        total = h[k, j] + v * h[k + 1, j]
        if three:
            total += w * h[k + 2, j]
            h[k + 2, j] -= total * third
        h[k, j] -= total * tau
        h[k + 1, j] -= total * second


@device
def reflect_three_columns(a, row, k, v, w, tau, three):
    """Reflect columns k, k + 1 and, if `three`, k + 2 in a row."""
    total = a[row, k] + v * a[row, k + 1]
    if three:
        total += w * a[row, k + 2]
        a[row, k + 2] -= total * tau * w
    a[row, k] -= total * tau
    a[row, k + 1] -= total * tau * v


@device
def francis_step(h, q, first, last, count, precision):
    """A step with two shifts on the rows from `first` to `last`."""
    n = h.shape[0]
    real = h.dtype.type
    one, other, imaginary = double_shift(h, first, last, count)
    start, a, b, c = step_start(h, first, last, one, other, imaginary, precision)
    cuda.syncthreads()
    for k in range(start, last):
        three = k + 2 <= last
        if k > start:
            a, b = float(h[k, k - 1]), float(h[k + 1, k - 1])
            c = float(h[k + 2, k - 1]) if three else 0.0
        elif not three:
            c = 0.0
        beta, tau, v, w = reflector(a, b, c)
        factor, second, third = real(tau), real(v), real(w)
        reflect_rows_of_three(h, k, second, third, factor, three)
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            if k > start:
                h[k, k - 1] = beta
                h[k + 1, k - 1] = 0
                if three:
                    h[k + 2, k - 1] = 0
            elif k > first:
                h[k, k - 1] *= 1.0 - tau
        rows = min(k + 3, last) + 1
        for row in range(cuda.threadIdx.x, rows + n, cuda.blockDim.x):
            if row < rows:
                reflect_three_columns(h, row, k, second, third, factor, three)
            else:
                reflect_three_columns(q, row - rows, k, second, third, factor, three)
        cuda.syncthreads()


@device
def francis(h, q, precision, least):
    """Bring a Hessenberg matrix to real Schur form; q is multiplied from the right. Whether the
    iteration converges."""
    n = h.shape[0]
    last = n - 1
    count = 0
    while last >= 0:
        first = active_start(h, last, precision, least)
        cuda.syncthreads()
        if first > 0 and cuda.threadIdx.x == 0:
            h[first, first - 1] = 0
        cuda.syncthreads()
        if first >= last - 1:
            if first == last - 1:
                standardise(h, q, first, precision)
            last = first - 1
            count = 0
        elif count == 30 * max(n, 10):
            return False
        else:
            count += 1
            francis_step(h, q, first, last, count, precision)
    return True


@device
def schur_form(a, h, q, sizes, precision, least):
    """h, q = the real Schur form and its vectors, a = q h q', by the threads of a block. Whether
    entries are finite and the iteration converges. `sizes` (n,) is overwritten."""
    n = h.shape[0]
    row_sizes(a, sizes)
    for task in range(cuda.threadIdx.x, n * n, cuda.blockDim.x):
        i, j = task // n, task % n
        h[i, j] = a[i, j]
        q[i, j] = 1 if i == j else 0
    cuda.syncthreads()
    largest = largest_size(sizes, n)
    if not largest < math.inf:
        return False
    hessenberg(h, q)
    return francis(h, q, precision, least)


@kernel(
    "real[:, :, ::1], real[:, :, ::1], real[:, :, ::1], real[:, ::1], float64, float64, "
    "int32[::1], int64"
)
def schur_forms(a, form, vectors, sizes, precision, least, failures, failure):
    """`schur`, by a block for each matrix."""
    for s in range(cuda.blockIdx.x, a.shape[0], cuda.gridDim.x):
        done = schur_form(a[s], form[s], vectors[s], sizes[s], precision, least)
        if cuda.threadIdx.x == 0 and not done:
            failures[failure] = 1
        cuda.syncthreads()


def schur(run, a, form, vectors, failure):
    """Real Schur form of each matrix of `a` (stack, n, n): a = v t v' for t = form, upper
    quasi-triangular with blocks in LAPACK's standard form, and v = vectors, orthogonal. It fails
    where the iteration does not converge."""
    stack, n, _ = a.shape
    precision = precision_of(form.dtype)
    least = float(np.finfo(form.dtype).tiny) * (max(n, 1) / precision)
    blocks = blocks_for(stack, 1) if n > 0 else 0
    arrays = a, form, vectors, run.empty((stack, n), form.dtype)
    threads = power_of_two(n, THREADS)
    run.launch(schur_forms, blocks, threads, *arrays, precision, least, run.failures, failure)


@kernel(
    "real[:, :, ::1], real[:, :, ::1], real[:, :, ::1], real[:, ::1], int64, int64, float64, "
    "int32[::1], int64"
)
def substitute_stack(a, b, y, sizes, a_turned, b_turned, precision, failures, failure):
    """Replace y (stack, n, m) by the X with op(A) X + X op(B) = y, for upper quasi-triangular A
    and B, with sizes (stack, n + m) to work in."""
    stack, n, m = y.shape
    for s in range(cuda.blockIdx.x, stack, cuda.gridDim.x):
        row_sizes(a[s], sizes[s, :n])
        row_sizes(b[s], sizes[s, n:])
        cuda.syncthreads()
        least = precision * largest_size(sizes[s], n + m)
        if not substitute_sylvester(a[s], b[s], y[s], a_turned != 0, b_turned != 0, least):
            failures[failure] = 1
        cuda.syncthreads()


def solve_quasi_sylvester(run, a, b, y, a_turned, b_turned, failure):
    """Replace y (stack, n, m) by the X with op(A) X + X op(B) = y, for upper quasi-triangular A
    and B. It fails where that is singular."""
    stack, n, m = y.shape
    blocks = blocks_for(stack, 1) if n > 0 and m > 0 else 0
    threads = power_of_two(min(n, m), THREADS)
    sizes = run.empty((stack, n + m), y.dtype)
    flags = int(bool(a_turned)), int(bool(b_turned)), precision_of(y.dtype)
    run.launch(substitute_stack, blocks, threads, a, b, y, sizes, *flags, run.failures, failure)


def schur_sylvester(
    run, a_form, a_vectors, b_form, b_vectors, c, out, left_turned, right_turned, failure
):
    """out (stack, n, m) = the X of A X + X B = C, from Schur forms of A and B, or of their
    transposes where these are turned. It fails where A and -B share an eigenvalue, so that the
    equation is singular."""
    half = run.empty(c.shape, out.dtype)
    gemm(run, 1.0, a_vectors, True, c, False, 0.0, half)
    gemm(run, 1.0, half, False, b_vectors, False, 0.0, out)
    solve_quasi_sylvester(run, a_form, b_form, out, left_turned, right_turned, failure)
    gemm(run, 1.0, a_vectors, False, out, False, 0.0, half)
    gemm(run, 1.0, half, False, b_vectors, True, 0.0, out)
