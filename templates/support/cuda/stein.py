"""X - A X A' = Q: a real Schur form of A, then substitution (Kitagawa 1977, Barraud 1977)."""

# mypy: allow-untyped-defs

from numba import cuda

from .base import THREADS, device, kernel, power_of_two
from .blocks import blocks_for
from .jacobi import precision_of
from .jets import widened
from .quasi import entry_of, in_order, solve_small
from .roots import from_basis, in_basis_of
from .sylvester import schur


@device
def solve_stein_block(a, y, first, high, left, wide, turned, precision, solution):
    """solution = the X with X - op(A) X op(B)' = the block of y from row `first` and column `left`
    on, for the diagonal blocks A, B there, row by row. Whether no eigenvalue of A is the inverse of
    one of B, within rounding errors."""
    system = cuda.local.array((4, 4), "float64")
    right = cuda.local.array(4, "float64")
    order = cuda.local.array(4, "int32")
    size = high * wide
    largest = 1.0
    for row in range(size):
        i, j = first + row // wide, left + row % wide
        right[row] = y[i, j]
        for column in range(size):
            k, m = first + column // wide, left + column % wide
            product = entry_of(a, turned, i, k) * entry_of(a, turned, j, m)
            largest = max(largest, abs(product))
            system[row, column] = (1.0 if row == column else 0.0) - product
    return solve_small(system, right, solution, order, size, 4 * precision * largest)


@device
def known_products(a, y, product, left, wide, turned):
    """Add to the columns of y from `left` on what is known of op(A) Y op(A)' there: what comes of
    the columns of Y that are found. product (n, 2) is overwritten."""
    n = a.shape[0]
    before, behind = left + wide, n
    if turned:
        before, behind = 0, left
    for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        for j in range(wide):
            total = 0.0
            for m in range(before, behind):
                total += y[k, m] * entry_of(a, turned, left + j, m)
            product[k, j] = total
    cuda.syncthreads()
    for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        for j in range(wide):
            total = 0.0
            for k in range(n):
                total += entry_of(a, turned, i, k) * product[k, j]
            y[i, left + j] += total
    cuda.syncthreads()


@device
def spread_block(a, y, solution, first, high, left, wide, turned):
    """Put the solution for a block in its place, and add to the other rows of these columns of y
    what comes of it."""
    n = a.shape[0]
    for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        if first <= i < first + high:
            for j in range(wide):
                y[i, left + j] = solution[(i - first) * wide + j]
        elif (i > first) == turned:
            for j in range(wide):
                total = 0.0
                for k in range(high):
                    for m in range(wide):
                        total += (
                            entry_of(a, turned, i, first + k)
                            * solution[k * wide + m]
                            * entry_of(a, turned, left + j, left + m)
                        )
                y[i, left + j] += total
    cuda.syncthreads()


@device
def substitute_stein(a, y, product, turned, precision):
    """Replace y (n, n) by the X with X - op(A) X op(A)' = y, for an upper quasi-triangular matrix,
    by the threads of a block, column by column. Whether it is not singular."""
    n = a.shape[0]
    solution = cuda.local.array(4, "float64")
    fine = True
    for position in range(n):
        left, wide = in_order(a, position, turned)
        if wide > 0:
            known_products(a, y, product, left, wide, turned)
            for step in range(n):
                first, high = in_order(a, step, turned)
                if high > 0:
                    fine &= solve_stein_block(
                        a, y, first, high, left, wide, turned, precision, solution
                    )
                    cuda.syncthreads()
                    spread_block(a, y, solution, first, high, left, wide, turned)
    return fine


@kernel(
    "float64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1], int64, float64, int32[::1], int64"
)
def substitute_stein_stack(a, y, product, turned, precision, failures, failure):
    """`substitute_stein` for a stack, with product (stack, n, 2) to work in."""
    for s in range(cuda.blockIdx.x, a.shape[0], cuda.gridDim.x):
        fine = substitute_stein(a[s], y[s], product[s], turned != 0, precision)
        if cuda.threadIdx.x == 0 and not fine:
            failures[failure] = 1
        cuda.syncthreads()


def solve_quasi_stein(run, a, y, turned, precision, failure):
    """Replace y (stack, n, n) by the X with X - op(A) X op(A)' = y, for upper quasi-triangular
    matrices. It fails where two eigenvalues have the product 1, up to rounding errors of numbers
    of this precision."""
    stack, n, _ = y.shape
    blocks = blocks_for(stack, 1) if n > 0 else 0
    last = run.empty((stack, n, 2)), int(turned), precision, run.failures, failure
    run.launch(substitute_stein_stack, blocks, power_of_two(n, THREADS), a, y, *last)


def discrete_lyapunov(run, a, q, out, failure):
    """out (stack, n, n) = the X with A X A' - X + Q = 0. It fails where the product of two
    eigenvalues of A is 1, or no Schur form is found."""
    run = run.in_double()
    form, vectors = run.empty(a.shape), run.empty(a.shape)
    schur(run, widened(run, a), form, vectors, failure)
    right = in_basis_of(run, vectors, widened(run, q))
    solve_quasi_stein(run, form, right, False, precision_of(out.dtype), failure)
    from_basis(run, vectors, right, out)
