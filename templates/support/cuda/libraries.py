"""Routines of cuBLAS and cuSOLVER, called through CuPy, for stacks of row-major matrices.

The libraries read our rows as columns, so that they see every matrix transposed. CuPy's current
stream is that of the run."""

# mypy: allow-untyped-defs

import numpy as np
from numba import cuda

from ..internals.launches import address
from .base import _cupy, imported, kernel

_cublas = imported("cupy.cuda", "cublas")  # as an attribute: CuPy finds the library for that
_cusolver = imported("cupy.cuda", "cusolver")
MAX_KERNEL_ROWS = 32
"""Matrices with at most this many rows are factorised by our kernels, larger ones by libraries."""
MAX_BATCHED_ROWS = 256
"""Stacks of matrices with at most this many rows use the libraries' batched routines."""


def by_library(run, purpose, n):
    """Decide whether libraries process matrices of n rows: those with more than MAX_KERNEL_ROWS.
    Raises RuntimeError if these libraries are missing."""
    if n > MAX_KERNEL_ROWS and (_cublas is None or _cusolver is None):
        raise RuntimeError(
            f"{run.function}: {purpose} of matrices with {n} rows needs cuBLAS and cuSOLVER "
            f"through CuPy, as all of more than {MAX_KERNEL_ROWS} rows; pip install "
            "'derivatrix[cuda]'"
        )
    return n > MAX_KERNEL_ROWS


def matrix_shape(array):
    """Rows and columns of a matrix, or of each of a stack."""
    return tuple(array.shape)[-2:]


def addresses(array):
    """A CuPy array of the addresses of the matrices of a stack."""
    step = array.size // array.shape[0] * array.dtype.itemsize
    start = address(array)
    return _cupy.arange(start, start + step * array.shape[0], step, dtype=np.uintp)


def cublas(run, name, *arguments):
    """Call a routine of cuBLAS in the precision of a run."""
    handle = _cupy.cuda.device.get_cublas_handle()
    getattr(_cublas, _typed(run, name))(handle, *arguments)


def cusolver(run, name, *arguments):
    """Call a routine of cuSOLVER in the precision of a run and return its result."""
    handle = _cupy.cuda.device.get_cusolver_handle()
    return getattr(_cusolver, _typed(run, name))(handle, *arguments)


def _typed(run, name):
    return ("s" if run.dtype == np.float32 else "d") + name


def gemm_by_library(run, alpha, left, left_transposed, right, right_transposed, beta, target):
    """`gemm` of factors that have 2 axes, or 3 for a stack."""
    rows, columns = matrix_shape(target)
    inner = matrix_shape(left)[0 if left_transposed else 1]
    stack = target.shape[0] if target.ndim == 3 else 1
    numbers = np.array([alpha, beta], run.dtype)
    factors = [
        (address(a), matrix_shape(a)[1], a.shape[1] * a.shape[2] if a.ndim == 3 else 0)
        for a in (right, left)
    ]
    cublas(
        run,
        "gemmStridedBatched",
        *(int(right_transposed), int(left_transposed), columns, rows, inner),
        numbers.ctypes.data,
        *factors[0],
        *factors[1],
        numbers.ctypes.data + numbers.itemsize,
        *(address(target), columns, rows * columns, stack),
    )


def triangular_by_library(run, a, b, lower, transposed):
    """Replace each row of `b` (stack, rows, n) by the solution of equations with the triangles of
    `a` (stack, n, n)."""
    stack, rows, n = b.shape
    if b.size == 0:
        return
    alpha = np.ones(1, run.dtype)
    fill = _cublas.CUBLAS_FILL_MODE_UPPER if lower else _cublas.CUBLAS_FILL_MODE_LOWER
    form = _cublas.CUBLAS_SIDE_LEFT, fill, int(not transposed), _cublas.CUBLAS_DIAG_NON_UNIT
    settings = (*form, n, rows, alpha.ctypes.data)
    if stack == 1:
        cublas(run, "trsm", *settings, address(a), n, address(b), n)
    else:
        matrices, sides = addresses(a), addresses(b)
        cublas(run, "trsmBatched", *settings, matrices.data.ptr, n, sides.data.ptr, n, stack)


def lu_by_library(run, lu, pivots):
    """Factor each matrix of `lu` (stack, n, n) in place, `pivots` (stack, n)."""
    stack, n = pivots.shape
    if stack == 0:
        return
    info = _cupy.empty(stack, np.int32)
    if stack > 1 and n <= MAX_BATCHED_ROWS:
        matrices = addresses(lu)
        info_address = info.data.ptr
        cublas(run, "getrfBatched", n, matrices.data.ptr, n, address(pivots), info_address, stack)
        return
    place, step = address(lu), n * n * lu.dtype.itemsize
    work = _cupy.empty(cusolver(run, "getrf_bufferSize", n, n, place, n), run.dtype)
    for s in range(stack):
        exchanges = address(pivots) + s * n * pivots.dtype.itemsize
        outputs = work.data.ptr, exchanges, info.data.ptr
        cusolver(run, "getrf", n, n, place + s * step, n, *outputs)


def lu_rows_by_library(run, lu, pivots, b, transposed):
    """Replace each row x of `b` (stack, rows, n) by inv(A) x, or by inv(A)' x."""
    stack, rows, n = b.shape
    if b.size == 0:
        return
    form = int(not transposed), n, rows
    if stack == 1:
        info = _cupy.empty(1, np.int32)
        factors = address(lu), n, address(pivots)
        cusolver(run, "getrs", *form, *factors, address(b), n, info.data.ptr)
    else:
        host_info = np.empty(1, np.int32)
        matrices, sides = addresses(lu), addresses(b)
        factors = matrices.data.ptr, n, address(pivots)
        cublas(
            run, "getrsBatched", *form, *factors, sides.data.ptr, n, host_info.ctypes.data, stack
        )


def cholesky_by_library(run, lower, failure):
    """Factor each matrix of `lower` (stack, n, n) in place; the rest of it is overwritten."""
    stack, n, _ = lower.shape
    if stack == 0:
        return
    fill = _cublas.CUBLAS_FILL_MODE_UPPER
    info = run.empty((stack,), np.int32)
    if stack > 1 and n <= MAX_BATCHED_ROWS:
        matrices = addresses(lower)
        cusolver(run, "potrfBatched", fill, n, matrices.data.ptr, n, address(info), stack)
    else:
        place, step = address(lower), n * n * lower.dtype.itemsize
        size = cusolver(run, "potrf_bufferSize", fill, n, place, n)
        work = _cupy.empty(size, run.dtype)
        for s in range(stack):
            info_address = address(info) + s * info.dtype.itemsize
            cusolver(run, "potrf", fill, n, place + s * step, n, work.data.ptr, size, info_address)
    run.launch(note_failures, stack, info, run.failures, failure)


def qr_by_library(columns, basis):
    """Factor matrices (p, k), p >= k, given by their columns in the rows of `columns` (stack, k,
    p): its lower triangle becomes R', and the rows of `basis` become the columns of Q."""
    if columns.size == 0:
        return
    packed, k = _cupy.asarray(columns), columns.shape[1]
    q, r = _cupy.linalg.qr(packed.swapaxes(1, 2))
    _cupy.asarray(basis)[...], packed[:, :, :k] = q.swapaxes(1, 2), r.swapaxes(1, 2)


def fail(run, failure):
    """Fail a check from the host."""
    run.launch(set_failure, 1, run.failures, failure)


@kernel("int32[::1], int64")
def set_failure(failures, failure):
    """Fail a check."""
    failures[failure] = 1


@kernel("int32[::1], int32[::1], int64")
def note_failures(info, failures, failure):
    """Fail a check if a routine's error code of a matrix is not 0."""
    for s in range(cuda.grid(1), len(info), cuda.gridsize(1)):
        if info[s] != 0:
            failures[failure] = 1
