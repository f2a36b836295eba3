"""Products of matrices of a few numbers, for which a call of BLAS takes longer than loops."""

# mypy: allow-untyped-defs

from numba.core import cgutils

from .base import LLVM, few_rounds

TINY_WORK = 128
"""Loops are faster up to so many multiplications."""
CHARACTER = LLVM.IntType(8)
INDEX = LLVM.IntType(64)
"""The places of entries."""
ONE_STEP = ("contract",)
"""A product and a sum may be one instruction."""


def loops_or_call(module, name, real, kinds):
    """The function of an LLVM module that takes what BLAS's gemm takes, pointers of `kinds`, and
    calls it (`name`), or multiplies by loops where there is little to do.

    The letters here are BLAS's: c (m, n) = alpha * op(a) (m, k) @ op(b) (k, n) + beta * c, for
    matrices with one column after the other."""
    kind = LLVM.FunctionType(LLVM.VoidType(), kinds)
    function = cgutils.get_or_insert_function(module, kind, f"product_{name}")
    if function.is_declaration:
        function.linkage = "linkonce_odr"
        builder = LLVM.IRBuilder(function.append_basic_block())
        with builder.if_then(is_tiny(builder, function.args[2:5])):
            builder.call(tiny_product(module, name, real, kind), function.args)
            builder.ret_void()
        whole = cgutils.get_or_insert_function(module, kind, name)
        builder.call(whole, function.args)
        builder.ret_void()
    return function


def tiny_product(module, name, real, kind):
    """The function of an LLVM module that takes what BLAS's gemm takes, and multiplies by loops."""
    function = cgutils.get_or_insert_function(module, kind, f"tiny_{name}")
    if function.is_declaration:
        function.linkage = "linkonce_odr"
        function.attributes.add("noinline")
        add_loops(LLVM.IRBuilder(function.append_basic_block()), real, function.args)
    return function


def is_tiny(builder, sizes):
    """Whether a product, whose sizes gemm gets, takes a few multiplications."""
    m, n, k = (number(builder, size) for size in sizes)
    return builder.icmp_signed("<=", builder.mul(builder.mul(m, n), k), INDEX(TINY_WORK))


def add_loops(builder, real, arguments):
    """c (m, n) = alpha * op(a) (m, k) @ op(b) (k, n) + beta * c, entry by entry, for matrices with
    one column after the other; c is not read where beta is 0."""
    transa, transb, *sizes, alpha, a, lda, b, ldb, beta, c, ldc = arguments
    m, n, k = (number(builder, size) for size in sizes)
    a_row, a_term = strides(builder, transa, lda)
    b_term, b_column = strides(builder, transb, ldb)
    c_column = number(builder, ldc)
    alpha, beta = builder.load(alpha), builder.load(beta)
    is_added = builder.fcmp_unordered("!=", beta, real(0.0))
    total = cgutils.alloca_once(builder, real)

    def moved(pointer, place, stride):
        return builder.gep(pointer, [builder.mul(place, stride)])

    def plus_product(x, y, kept):
        return builder.fadd(builder.fmul(x, y, flags=ONE_STEP), kept, flags=ONE_STEP)

    with cgutils.for_range(builder, n) as column, cgutils.for_range(builder, m) as row:
        a_line = moved(a, row.index, a_row)
        b_line = moved(b, column.index, b_column)
        entry = builder.gep(moved(c, column.index, c_column), [row.index])
        builder.store(real(0.0), total)
        with cgutils.for_range(builder, k) as term:
            few_rounds(builder)
            x = builder.load(moved(a_line, term.index, a_term))
            y = builder.load(moved(b_line, term.index, b_term))
            builder.store(plus_product(x, y, builder.load(total)), total)
        builder.store(builder.fmul(alpha, builder.load(total)), total)
        with builder.if_then(is_added):
            kept = plus_product(beta, builder.load(entry), builder.load(total))
            builder.store(kept, total)
        builder.store(builder.load(total), entry)
    builder.ret_void()


def strides(builder, flag, step):
    """How far apart the rows and the columns of op(a matrix) are, whose columns are `step`."""
    turned, one = is_transposed(builder, flag), INDEX(1)
    step = number(builder, step)
    return builder.select(turned, step, one), builder.select(turned, one, step)


def number(builder, pointer):
    """What a pointer to one of BLAS's integers points to."""
    return builder.sext(builder.load(pointer), INDEX)


def is_transposed(builder, flag):
    return builder.icmp_signed("!=", builder.load(flag), CHARACTER(ord("N")))
