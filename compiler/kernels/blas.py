"""BLAS: its routines, each named once, and matrix products through it."""

# mypy: allow-untyped-defs

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from derivatrix.compiler.kernels.base import compiled, register, routine

SPLIT = 192
"""Symmetric products of fewer rows are computed as a whole."""
TILE = 32

GEMM = register("blas", "gemm")
blas_trsm = routine("blas", "trsm")


def matrix_product():
    """The function gemm(alpha, a, transpose_a, b, transpose_b, beta, c) of kernels: it sets c to
    alpha * op(a) @ op(b) + beta * c, for matrices whose rows are contiguous.

    BLAS has columns where we have rows, so it computes c' = op(b)' @ op(a)'. An intrinsic, since a
    compiled function for every combination of array types would take most of the time that kernels
    take to compile.
    """

    @intrinsic
    def call(context, alpha, a, transpose_a, b, transpose_b, beta, c):
        def generate(context, builder, signature, values):
            llvm = cgutils.ir  # type: ignore[attr-defined]
            real = c.dtype
            size = llvm.Constant(context.get_value_type(types.intp), real.bitwidth // 8)
            one = llvm.Constant(size.type, 1)

            def largest(x, y):
                return builder.select(builder.icmp_signed(">", x, y), x, y)

            def matrix(position):
                kind = signature.args[position]
                array = context.make_array(kind)(context, builder, values[position])
                rows, columns = cgutils.unpack_tuple(builder, array.shape)
                step, _ = cgutils.unpack_tuple(builder, array.strides)
                return array.data, rows, columns, largest(builder.sdiv(step, size), columns)

            def integer(value):
                narrow = builder.trunc(largest(value, one), llvm.IntType(32))
                return cgutils.alloca_once_value(builder, narrow)

            def number(position):
                value = context.cast(builder, values[position], signature.args[position], real)
                return cgutils.alloca_once_value(builder, value)

            def letter(flag):
                chosen = builder.select(
                    flag, *(llvm.Constant(llvm.IntType(8), ord(name)) for name in "TN")
                )
                return cgutils.alloca_once_value(builder, chosen)

            (a_data, a_rows, a_columns, a_step), turned_a = matrix(1), values[2]
            (b_data, _, _, b_step), turned_b = matrix(3), values[4]
            c_data, rows, columns, c_step = matrix(6)
            inner = builder.select(turned_a, a_rows, a_columns)
            sizes = [integer(value) for value in (columns, rows)]
            counted = cgutils.alloca_once_value(builder, builder.trunc(inner, llvm.IntType(32)))
            pointers = [letter(turned_b), letter(turned_a), *sizes, counted, number(0)]
            pointers += [b_data, integer(b_step), a_data, integer(a_step), number(5)]
            pointers += [c_data, integer(c_step)]
            function = cgutils.get_or_insert_function(
                builder.module,
                llvm.FunctionType(llvm.VoidType(), [pointer.type for pointer in pointers]),
                ("s" if real == types.float32 else "d") + GEMM,
            )
            filled = builder.icmp_signed(
                ">", builder.mul(rows, columns), llvm.Constant(size.type, 0)
            )
            with builder.if_then(filled):
                builder.call(function, pointers)
            return context.get_dummy_value()

        return types.void(alpha, a, transpose_a, b, transpose_b, beta, c), generate

    return call


gemm = matrix_product()


@compiled()
def symmetric_gemm(alpha, a, transpose_a, b, transpose_b, beta, c):
    """`gemm` where c comes out symmetric: its lower triangle by blocks of rows, and mirrored."""
    n = c.shape[0]
    if n < SPLIT:
        gemm(alpha, a, transpose_a, b, transpose_b, beta, c)
        return
    inner = a.shape[0] if transpose_a else a.shape[1]
    block = max(SPLIT // 4, (n + 7) // 8)
    for start in range(0, n, block):
        stop = min(start + block, n)
        left, right = (inner, stop) if transpose_a else (stop, inner)
        below, beside = (stop, inner) if transpose_b else (inner, stop)
        first, begin = (0, start) if transpose_a else (start, 0)
        gemm(
            alpha,
            a[first:left, begin:right],
            transpose_a,
            b[:below, :beside],
            transpose_b,
            beta,
            c[start:stop, :stop],
        )
    mirror(c)


@compiled()
def mirror(c):
    """Copy the lower triangle of c (n, n) to the upper one, tile by tile."""
    n = c.shape[0]
    for top in range(0, n, TILE):
        for left in range(0, top + 1, TILE):
            for i in range(top, min(top + TILE, n)):
                for j in range(left, min(left + TILE, i)):
                    c[j, i] = c[i, j]
