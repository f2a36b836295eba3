"""BLAS and LAPACK in kernels, through the pointers that SciPy offers to Cython.

These routines have columns where NumPy has rows: to them a C-contiguous matrix is its transpose,
and the lower triangle is the upper one.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address

from tests.benchmarks.specialist.compiled import intrinsic, kernel

ir: Any = cgutils.ir  # type: ignore[attr-defined]

BLOCK = 32

ROUTINES = (
    *("blas gemm", "blas gemv", "blas ger", "blas symm", "blas syrk", "blas trmm", "blas trsm"),
    *("lapack potrf", "lapack potri", "lapack potrs", "lapack getrf", "lapack getri"),
    *("lapack getrs", "lapack lauum", "lapack trtri"),
)


def register() -> None:
    """Tell LLVM where the routines are; kernels that come from Numba's cache need it too."""
    for library, name in (routine.split() for routine in ROUTINES):
        for letter in "sd":
            address = get_cython_function_address(f"scipy.linalg.cython_{library}", letter + name)
            binding.add_symbol(f"specialist_{letter}{name}", address)


register()


@intrinsic(prefer_literal=True)
def call(context: Any, what: Any, arguments: Any) -> Any:
    """call("gemm NT", (m, n, k, alpha, A, m, ...)) calls SciPy's BLAS or LAPACK routine of that
    name with these flags first, in the precision of its arrays. Returns the last integer argument
    as the routine left it, which for LAPACK is `info`.

    An intrinsic, since Numba does not cache kernels that hold pointers of ctypes.
    """
    name, _, flags = what.literal_value.partition(" ")
    real = next(kind.dtype for kind in arguments if isinstance(kind, types.Array))
    symbol = f"specialist_{'s' if real == types.float32 else 'd'}{name}"

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        integer, byte = ir.IntType(32), ir.IntType(8)
        pointers = [
            cgutils.alloca_once_value(builder, ir.Constant(byte, ord(flag))) for flag in flags
        ]
        last = None
        for kind, value in zip(arguments, cgutils.unpack_tuple(builder, values[1]), strict=True):
            if isinstance(kind, types.Array):
                pointers.append(context.make_array(kind)(context, builder, value).data)
            elif isinstance(kind, types.Float):
                number = context.cast(builder, value, kind, real)
                pointers.append(cgutils.alloca_once_value(builder, number))
            else:
                wide = context.cast(builder, value, kind, types.intp)
                last = cgutils.alloca_once_value(builder, builder.trunc(wide, integer))
                pointers.append(last)
        routine = ir.FunctionType(ir.VoidType(), [pointer.type for pointer in pointers])
        builder.call(cgutils.get_or_insert_function(builder.module, routine, symbol), pointers)
        return builder.sext(builder.load(last), context.get_value_type(types.intp))

    return types.intp(what, arguments), generate


@kernel
def add_small(A, B, out):
    """Add A B to out, by four rows of B at a time; for sizes up to about 20."""
    inner, columns = B.shape
    fours = inner // 4 * 4
    for i in range(len(A)):
        for k in range(0, fours, 4):
            a, b, c, d = A[i, k], A[i, k + 1], A[i, k + 2], A[i, k + 3]
            for j in range(columns):
                out[i, j] += a * B[k, j] + b * B[k + 1, j] + c * B[k + 2, j] + d * B[k + 3, j]
        for k in range(fours, inner):
            for j in range(columns):
                out[i, j] += A[i, k] * B[k, j]


@kernel
def product(alpha, A, B, beta, out):
    """Set out to alpha A B + beta out."""
    rows, columns = out.shape
    inner = len(B)
    call("gemm NN", (columns, rows, inner, alpha, B, columns, A, inner, beta, out, columns))


@kernel
def product_by_transpose(alpha, A, B, beta, out):
    """Set out to alpha A Bᵀ + beta out."""
    rows, columns = out.shape
    inner = A.shape[1]
    call("gemm TN", (columns, rows, inner, alpha, B, inner, A, inner, beta, out, columns))


@kernel
def product_of_transpose(alpha, A, B, beta, out):
    """Set out to alpha Aᵀ B + beta out."""
    rows, columns = out.shape
    inner = len(A)
    call("gemm NT", (columns, rows, inner, alpha, B, columns, A, rows, beta, out, columns))


@kernel
def mirror(A):
    """Copy what lies below the diagonal above it, in blocks that stay in the cache."""
    n = len(A)
    for top in range(0, n, BLOCK):
        bottom = min(n, top + BLOCK)
        for left in range(0, top + 1, BLOCK):
            for i in range(top, bottom):
                for j in range(left, min(i, left + BLOCK)):
                    A[j, i] = A[i, j]


@kernel
def eliminate(A, order):
    """Replace A by its factors L and U with rows exchanged; order[k] is the row that was
    exchanged with k. For sizes at which LAPACK's calls take longer than its work."""
    n = len(A)
    for k in range(n):
        pivot, size = k, abs(A[k, k])
        for i in range(k + 1, n):
            if abs(A[i, k]) > size:
                pivot, size = i, abs(A[i, k])
        order[k] = pivot
        if pivot != k:
            for j in range(n):
                A[k, j], A[pivot, j] = A[pivot, j], A[k, j]
        inverse, top = 1.0 / A[k, k], A[k, k + 1 :]
        for i in range(k + 1, n):
            factor, row = A[i, k] * inverse, A[i, k + 1 :]
            A[i, k] = factor
            for j in range(n - k - 1):
                row[j] -= factor * top[j]


@kernel
def substitute(A, order, x):
    """Solve A x = x with the factors of `eliminate`."""
    n = len(A)
    for k in range(n):
        x[k], x[order[k]] = x[order[k]], x[k]
    for i in range(n):
        total = x[i]
        for j in range(i):
            total -= A[i, j] * x[j]
        x[i] = total
    for i in range(n - 1, -1, -1):
        total = x[i]
        for j in range(i + 1, n):
            total -= A[i, j] * x[j]
        x[i] = total / A[i, i]


@kernel
def substitute_transposed(A, order, x):
    """Solve Aᵀ x = x with the factors of `eliminate`."""
    n = len(A)
    for i in range(n):
        value = x[i] / A[i, i]
        x[i] = value
        for j in range(i + 1, n):
            x[j] -= A[i, j] * value
    for i in range(n - 1, -1, -1):
        value = x[i]
        for j in range(i):
            x[j] -= A[i, j] * value
    for k in range(n - 1, -1, -1):
        x[k], x[order[k]] = x[order[k]], x[k]


@kernel
def invert(A):
    """A⁻¹, by loops for a few rows."""
    n = len(A)
    inverse = A.copy()
    if n > 24:
        pivots, work = np.empty(n, np.int32), np.empty(n * 32)
        call("getrf", (n, n, inverse, n, pivots, 0))
        call("getri", (n, inverse, n, pivots, work, n * 32, 0))
        return inverse
    exchange_and_clear(inverse)
    return inverse


@kernel
def exchange_and_clear(inverse):
    """Replace a matrix by its inverse, by Gauss and Jordan."""
    n = len(inverse)
    order = np.empty(n, np.int64)
    for k in range(n):
        pivot, size = k, abs(inverse[k, k])
        for i in range(k + 1, n):
            if abs(inverse[i, k]) > size:
                pivot, size = i, abs(inverse[i, k])
        order[k] = pivot
        if pivot != k:
            for j in range(n):
                inverse[k, j], inverse[pivot, j] = inverse[pivot, j], inverse[k, j]
        factor, top = 1.0 / inverse[k, k], inverse[k]
        top[k] = 1.0
        for j in range(n):
            top[j] *= factor
        for i in range(n):
            if i != k:
                row, factor = inverse[i], inverse[i, k]
                row[k] = 0.0
                for j in range(n):
                    row[j] -= factor * top[j]
    for k in range(n - 1, -1, -1):
        if order[k] != k:
            for i in range(n):
                inverse[i, k], inverse[i, order[k]] = inverse[i, order[k]], inverse[i, k]
