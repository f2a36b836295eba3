"""BLAS: its routines, each named once, and matrix products through it."""

# mypy: allow-untyped-defs, disable-error-code="call-arg, var-annotated"

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .base import (
    LLVM,
    LOWER,
    NO,
    TRANSPOSED,
    UPPER,
    WHOLE,
    compiled,
    register,
    routine,
)
from .tiny import loops_or_call
from .workspace import give_back, work_arrays

SPLIT = 192
"""Symmetric products of fewer rows are computed as a whole, of doubles of half as many."""
LEAST = 24
"""Products with triangular matrices go by blocks of so many rows at least,"""
MOST = 16
"""and so many blocks at most."""
WIDE = 128
"""Symmetric products go by blocks of about so many rows,"""
UNPACKED = 1_000_000
"""or of the least number where a block takes so many multiplications: OpenBLAS then multiplies
without copies."""
TILE = 32
GRAM = 384
"""From so many rows on, BLAS's product of a matrix and its transpose is faster than blocks,"""
HELD = 256
"""and so many rows of weighted samples, which stay in the cache, are enough at a time."""

GEMM = register("blas", "gemm")
blas_syrk = routine("blas", "syrk")
blas_trsm = routine("blas", "trsm")


def matrix_product(parts):
    """The function gemm(alpha, a, transpose_a, b, transpose_b, beta, c) of kernels: it sets c to
    alpha * op(a) @ op(b) + beta * c, for matrices whose rows are contiguous. With `parts` it has
    an argument more, (top, bottom, left, right, first, last): it does so for these rows and
    columns of c, with these columns of op(a) and rows of op(b).

    BLAS has columns where we have rows, so it computes c' = op(b)' @ op(a)'. An intrinsic, since a
    compiled function for every combination of array types would take most of the time that kernels
    take to compile, and views of parts nearly as much.
    """

    def typed(alpha, a, transpose_a, b, transpose_b, beta, c, *ranges):
        def generate(context, builder, signature, values):
            real = c.dtype
            size = LLVM.Constant(context.get_value_type(types.intp), real.bitwidth // 8)
            one, zero = LLVM.Constant(size.type, 1), LLVM.Constant(size.type, 0)

            def largest(x, y):
                return builder.select(builder.icmp_signed(">", x, y), x, y)

            def matrix(position):
                kind = signature.args[position]
                array = context.make_array(kind)(context, builder, values[position])
                rows, columns = cgutils.unpack_tuple(builder, array.shape)
                step, _ = cgutils.unpack_tuple(builder, array.strides)
                return array.data, rows, columns, largest(builder.sdiv(step, size), columns)

            def integer(value):
                narrow = builder.trunc(largest(value, one), LLVM.IntType(32))
                return cgutils.alloca_once_value(builder, narrow)

            def number(position):
                return context.cast(builder, values[position], signature.args[position], real)

            def factor_of_c():
                """beta; where there is nothing to sum, with alpha * 0, which may be nan."""
                alpha, beta = number(0), number(5)
                nothing = builder.fmul(alpha, LLVM.Constant(alpha.type, 0.0))
                empty = builder.icmp_signed("==", inner, zero)
                return builder.select(empty, builder.fadd(beta, nothing), beta)

            def passed(value):
                return cgutils.alloca_once_value(builder, value)

            def letter(flag):
                chosen = builder.select(
                    flag, *(LLVM.Constant(LLVM.IntType(8), ord(name)) for name in "TN")
                )
                return cgutils.alloca_once_value(builder, chosen)

            def at(data, step, row, column, turned):
                row, column = (
                    builder.select(turned, column, row),
                    builder.select(turned, row, column),
                )
                return builder.gep(data, [builder.add(builder.mul(row, step), column)])

            (a_data, a_rows, a_columns, a_step), turned_a = matrix(1), values[2]
            (b_data, _, _, b_step), turned_b = matrix(3), values[4]
            c_data, rows, columns, c_step = matrix(6)
            inner = builder.select(turned_a, a_rows, a_columns)
            if parts:
                top, bottom, left, right, first, last = cgutils.unpack_tuple(builder, values[7])
                a_data = at(a_data, a_step, top, first, turned_a)
                b_data = at(b_data, b_step, first, left, turned_b)
                c_data = at(c_data, c_step, top, left, LLVM.Constant(LLVM.IntType(1), 0))
                rows, columns = builder.sub(bottom, top), builder.sub(right, left)
                inner = builder.sub(last, first)
            counted = cgutils.alloca_once_value(builder, builder.trunc(inner, LLVM.IntType(32)))
            pointers = [
                letter(turned_b),
                letter(turned_a),
                integer(columns),
                integer(rows),
                counted,
            ]
            pointers += [passed(number(0)), b_data, integer(b_step), a_data, integer(a_step)]
            pointers += [passed(factor_of_c()), c_data, integer(c_step)]
            kinds = [pointer.type for pointer in pointers]
            name = ("s" if real == types.float32 else "d") + GEMM
            function = loops_or_call(builder.module, name, context.get_value_type(real), kinds)
            with builder.if_then(builder.icmp_signed(">", builder.mul(rows, columns), zero)):
                builder.call(function, pointers)
            return context.get_dummy_value()

        return types.void(alpha, a, transpose_a, b, transpose_b, beta, c, *ranges), generate

    if parts:

        @intrinsic
        def call(context, alpha, a, transpose_a, b, transpose_b, beta, c, part):
            return typed(alpha, a, transpose_a, b, transpose_b, beta, c, part)

    else:

        @intrinsic
        def call(context, alpha, a, transpose_a, b, transpose_b, beta, c):
            return typed(alpha, a, transpose_a, b, transpose_b, beta, c)

    return call


gemm = matrix_product(parts=False)
gemm_part = matrix_product(parts=True)


@compiled()
def structured_gemm(alpha, a, transpose_a, b, transpose_b, beta, c, left, right, part):
    """`gemm` that leaves out zeros, by blocks of rows of c, or of columns where only op(b) is
    triangular. left, right: op(a) and op(b) are LOWER or UPPER triangular, or WHOLE. part: WHOLE,
    or LOWER where c is wanted on and below the diagonal only; beta is 0 or 1.
    """
    rows, columns = c.shape
    inner = a.shape[0] if transpose_a else a.shape[1]
    by_rows = left != WHOLE or part == LOWER
    length = rows if by_rows else columns
    block = (length + MOST - 1) // MOST
    if block < LEAST:
        block = LEAST
    if part == LOWER and left == WHOLE and right == WHOLE and LEAST * rows * inner > UNPACKED:
        count = rows // WIDE if rows // WIDE > 1 else 2
        if count < 4 and c.itemsize == 8:
            count = 4
        block = (rows // count + 8) // 8 * 8
    for start in range(0, length, block):
        stop = start + block if start + block < length else length
        top, bottom, begin, end, first, last = 0, rows, 0, columns, 0, inner
        if by_rows:
            top, bottom = start, stop
            if left == UPPER:
                first = start
            if left == LOWER:
                last = stop
            if part == LOWER:
                end = stop
        else:
            begin, end = start, stop
        if right == LOWER:
            if by_rows and last < end:
                end = last
            if begin > first:
                first = begin
        if right == UPPER:
            if by_rows and first > begin:
                begin = first
            if end < last:
                last = end
        if beta == 0 and by_rows:
            wanted = stop if part == LOWER else columns
            for i in range(top, bottom):
                for j in range(begin):
                    c[i, j] = 0
                for j in range(end, wanted):
                    c[i, j] = 0
        gemm_part(
            alpha,
            a,
            transpose_a,
            b,
            transpose_b,
            beta,
            c,
            (top, bottom, begin, end, first, last),
        )


@compiled(inline="always")
def symmetric_gemm(alpha, a, transpose_a, b, transpose_b, beta, c, left, right):
    """`structured_gemm` where c comes out symmetric: its lower triangle, and mirrored."""
    least = SPLIT if c.itemsize == 4 else SPLIT // 2
    if c.shape[0] < least and left == WHOLE and right == WHOLE:
        gemm(alpha, a, transpose_a, b, transpose_b, beta, c)
    else:
        structured_gemm(alpha, a, transpose_a, b, transpose_b, beta, c, left, right, LOWER)
        mirror(c)


@compiled(inline="always")
def packs(n, inner):
    """Whether symmetric products of n rows are so large that OpenBLAS copies what it multiplies."""
    return n >= GRAM and LEAST * n * inner > UNPACKED


@compiled(inline="always")
def gram(alpha, a, transpose_a, beta, c):
    """c (n, n) = alpha * op(a) @ op(a)' + beta * c, where c was symmetric."""
    n, columns = c.shape[0], a.shape[1]
    inner = a.shape[0] if transpose_a else columns
    if packs(n, inner):
        trans = NO if transpose_a else TRANSPOSED
        blas_syrk((UPPER, trans, n, inner, alpha, a, columns, beta, c, n))
        mirror(c)
    else:
        symmetric_gemm(alpha, a, transpose_a, a, not transpose_a, beta, c, WHOLE, WHOLE)


@compiled(inline="always")
def weighted_gram(a, weights, add, c):
    """c (n, n) = a' diag(weights) a, or += where c was symmetric, for a (samples, n). The samples
    of negative weights come last, and are taken off.
    """
    samples, n = a.shape
    beta = 1.0 if add else 0.0
    if not packs(n, samples):
        scaled, memory = work_arrays(a, ((samples, n),), ())
        for s in range(samples):
            for j in range(n):
                scaled[s, j] = weights[s] * a[s, j]
        symmetric_gemm(1.0, a, True, scaled, False, beta, c, WHOLE, WHOLE)
        give_back(memory)
        return
    scaled, memory = work_arrays(a, ((HELD, n),), ())
    for start in range(0, samples, HELD):
        count = min(HELD, samples - start)
        first, last = 0, count
        for s in range(start, start + count):
            if weights[s] < 0:
                last -= 1
            place = last if weights[s] < 0 else first
            root = np.sqrt(abs(weights[s]))
            for j in range(n):
                scaled[place, j] = root * a[s, j]
            if not weights[s] < 0:
                first += 1
        blas_syrk((UPPER, NO, n, first, 1.0, scaled, n, beta, c, n))
        blas_syrk((UPPER, NO, n, count - last, -1.0, scaled[last:], n, 1.0, c, n))
        beta = 1.0
    mirror(c)
    give_back(memory)


@compiled()
def spread_triangles(packed, whole):
    """Symmetric matrices `whole` (stack, n, n) from their lower triangles, row by row (stack,
    n (n + 1) / 2)."""
    stack, n, _ = whole.shape
    for s in range(stack):
        place = 0
        for i in range(n):
            for j in range(i + 1):
                whole[s, i, j] = packed[s, place]
                whole[s, j, i] = packed[s, place]
                place += 1


@compiled()
def mirror(c):
    """Copy the lower triangle of c (n, n) to the upper one, tile by tile."""
    n = c.shape[0]
    for top in range(0, n, TILE):
        for left in range(0, top + 1, TILE):
            for i in range(top, min(top + TILE, n)):
                for j in range(left, min(left + TILE, i)):
                    c[j, i] = c[i, j]
