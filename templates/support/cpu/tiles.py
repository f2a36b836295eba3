"""Products of matrices of some hundred rows, tile by tile.

OpenBLAS multiplies small matrices as they lie, on some processors, and copies larger ones to where
its kernels read them one number after the other. Up to some hundred rows, those copies take longer
than it takes to reach what is not side by side. It multiplies slowly, though, where the terms of a
sum are side by side in both factors.
"""

# mypy: allow-untyped-defs

import ctypes
from functools import reduce

from numba.core import cgutils
from numba.core.codegen import initialize_llvm, ll  # type: ignore[attr-defined]
from scipy.linalg import cython_blas

from .base import LLVM
from .tiny import (
    CHARACTER,
    INDEX,
    is_tiny,
    is_transposed,
    number,
    tiny_product,
)

TILE_WORK = 1_000_000
"""OpenBLAS multiplies without copies where so many multiplications are to be done at most."""
TILED_WORK = 64_000_000
"""Tiles are faster up to so many multiplications,"""
TILED_SINGLES = 27_500_000
"""or so many of single precision,"""
TILED_LEAST = 32
"""for matrices of so many rows and columns at least,"""
CLASHING_STEP = 1024
"""and where rows are not a multiple of so many bytes apart, whose entries of a column share places
in the cache,"""
CLASHING_WORK = 2_200_000
"""or only so many multiplications are to be done."""
COPIED_LEAST = 16
"""A factor is copied to be transposed where each of its entries is used so many times, and the
result has so many times as many entries as a sum has terms,"""
COPIED_TERMS = 128
"""and those sums for which an entry is used have so many terms together."""
TILE_SIDE = 128
"""The longest side of a tile."""
COPY_STEP = 136
"""The columns of a copied tile are so many numbers apart, which does not clash."""
TURNED_SIDE = 8
"""Tiles are transposed by blocks of so many rows and columns."""
INTEGER = LLVM.IntType(32)
"""BLAS's integers."""
WITHOUT_COPIES = (b"SkylakeX", b"Cooperlake", b"SapphireRapids")
"""The processors, as OpenBLAS calls them, for which it has kernels that multiply without copies."""


def register_threads():
    """Let kernels ask for the number of threads of SciPy's OpenBLAS, or 0 where it copies small
    matrices, too, or SciPy has another BLAS; its name for LLVM, its address, and what has to stay
    in memory."""
    library = ctypes.CDLL(cython_blas.__file__)
    try:
        processor = ctypes.CFUNCTYPE(ctypes.c_char_p)(("scipy_openblas_get_corename", library))()
        owner = ctypes.CFUNCTYPE(ctypes.c_int)(("scipy_openblas_get_num_threads", library))
        address = ctypes.cast(owner, ctypes.c_void_p).value
    except AttributeError:
        processor = b""
    if processor not in WITHOUT_COPIES:
        owner, address = no_threads()
    name = "threads_derivatrix"
    ll.add_symbol(name, address)
    return name, address, owner


def no_threads():
    """A function that returns 0, as (what has to stay in memory, its address): one of Python's
    would make each product wait for Python's lock."""
    initialize_llvm()
    machine = ll.Target.from_default_triple().create_target_machine()
    module = ll.parse_assembly("define i32 @none() { ret i32 0 }")
    engine = ll.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine, engine.get_function_address("none")


THREADS = register_threads()


def tiled(module, name, real, kinds):
    """The function of an LLVM module that takes what BLAS's gemm takes, pointers of `kinds`, and
    calls it (`name`), once for each tile of the product where that is faster, or not at all where
    loops are.

    The letters are BLAS's: c (m, n) = alpha * op(a) (m, k) @ op(b) (k, n) + beta * c, for matrices
    with one column after the other. Tiles of a are copied where it is transposed and b is not.
    """
    kind = LLVM.FunctionType(LLVM.VoidType(), kinds)
    function = cgutils.get_or_insert_function(module, kind, f"tiled_{name}")
    if function.is_declaration:
        whole = cgutils.get_or_insert_function(module, kind, name)
        by_tiles = LLVM.Function(module, kind, f"tiles_{name}")
        add_tiles(by_tiles, whole, real)
        function.linkage = by_tiles.linkage = "linkonce_odr"
        builder = LLVM.IRBuilder(function.append_basic_block())
        with builder.if_then(is_tiny(builder, function.args[2:5])):
            builder.call(tiny_product(module, name, real, kind), function.args)
            builder.ret_void()
        with builder.if_else(tiles_pay(builder, real, function.args)) as (then, otherwise):
            with then:
                builder.call(by_tiles, function.args)
            with otherwise:
                builder.call(whole, function.args)
        builder.ret_void()
    return function


def tiles_pay(builder, real, arguments):
    """Whether a product is faster by tiles."""
    transa, transb, *sizes, _, _, lda, _, ldb, _, _, ldc = arguments
    m, n, k = (number(builder, size) for size in sizes)

    def reaches(value, bound):
        return builder.icmp_signed(">=", value, bound)

    def all_of(*conditions):
        return reduce(builder.and_, conditions)

    kind = LLVM.FunctionType(INTEGER, [])
    threads = builder.call(cgutils.get_or_insert_function(builder.module, kind, THREADS[0]), [])
    work = builder.mul(builder.mul(m, n), k)
    large = builder.icmp_signed(">", work, INDEX(TILE_WORK))
    copied = all_of(
        reaches(n, INDEX(COPIED_LEAST)),
        reaches(builder.mul(n, k), INDEX(COPIED_TERMS)),
        reaches(builder.mul(m, n), builder.mul(k, INDEX(COPIED_LEAST))),
    )
    as_they_lie = all_of(large, *(reaches(length, INDEX(TILED_LEAST)) for length in (m, n, k)))
    alone = builder.icmp_signed("==", threads, INTEGER(1))
    single = isinstance(real, LLVM.FloatType)
    wanted = [
        builder.select(is_copied(builder, transa, transb), copied, as_they_lie),
        builder.select(large, alone, reaches(threads, INTEGER(1))),
        reaches(INDEX(TILED_SINGLES if single else TILED_WORK), work),
    ]
    for step in (lda, ldb, ldc):
        rest = builder.and_(number(builder, step), INDEX(CLASHING_STEP // (4 if single else 8) - 1))
        wanted.append(builder.or_(reaches(INDEX(CLASHING_WORK), work), reaches(rest, INDEX(1))))
    return all_of(*wanted)


def add_tiles(function, whole, real):
    """The body of the function that calls `whole` for each tile. The first terms of the sums are
    added to beta * c, the others to what is there."""
    for attribute in ("noinline", "optnone"):  # as fast, and compiled in a tenth of the time
        function.attributes.add(attribute)
    builder = LLVM.IRBuilder(function.append_basic_block())
    transa, transb, *sizes, alpha, a, lda, b, ldb, beta, c, ldc = function.args
    m, n, k = (number(builder, size) for size in sizes)
    a_step, b_step, c_step = (number(builder, step) for step in (lda, ldb, ldc))
    turned_a, turned_b = is_transposed(builder, transa), is_transposed(builder, transb)
    copied = is_copied(builder, transa, transb)

    def passed(value):
        return cgutils.alloca_once_value(builder, builder.trunc(value, INTEGER))

    deep = equal_parts(builder, k, INDEX(TILE_SIDE), 1)
    high = least(builder, equal_parts(builder, m, INDEX(TILE_SIDE), 16), m)
    wide = builder.sdiv(INDEX(TILE_WORK), builder.mul(high, deep))
    wide = equal_parts(builder, n, builder.and_(wide, INDEX(-8)), 8)
    copy = builder.alloca(real, TILE_SIDE * COPY_STEP)  # not Numba's, which clears it
    copy.align = 64
    transa = builder.select(copied, cgutils.alloca_once_value(builder, CHARACTER(ord("N"))), transa)
    lda = builder.select(copied, passed(INDEX(COPY_STEP)), lda)
    zero, one = INDEX(0), cgutils.alloca_once_value(builder, real(1.0))
    with (
        cgutils.for_range_slice(builder, zero, m, high) as (row, _),
        cgutils.for_range_slice(builder, zero, k, deep) as (term, _),
    ):
        rows = least(builder, builder.sub(m, row), high)
        terms = least(builder, builder.sub(k, term), deep)
        a_tile = entry(builder, a, a_step, row, term, turned_a)
        with builder.if_then(copied):
            copy_transposed(builder, a_tile, a_step, copy, terms, rows)
        a_tile = builder.select(copied, copy, a_tile)
        factor = builder.select(builder.icmp_signed("==", term, zero), beta, one)
        with cgutils.for_range_slice(builder, zero, n, wide) as (column, _):
            columns = least(builder, builder.sub(n, column), wide)
            tile = [passed(length) for length in (rows, columns, terms)]
            b_tile = entry(builder, b, b_step, term, column, turned_b)
            c_tile = entry(builder, c, c_step, row, column)
            given = [alpha, a_tile, lda, b_tile, ldb, factor, c_tile, ldc]
            builder.call(whole, [transa, transb, *tile, *given])
    builder.ret_void()


def is_copied(builder, transa, transb):
    """Whether tiles of a are: its columns are then the terms of a sum, as are those of b."""
    turned = is_transposed(builder, transa)
    return builder.and_(turned, builder.not_(is_transposed(builder, transb)))


def equal_parts(builder, length, most, unit):
    """The length of equal parts, multiples of `unit`, of which `most` is one."""

    def parts(count):
        return builder.sdiv(builder.add(length, builder.sub(count, count.type(1))), count)

    part = parts(parts(most))
    return builder.and_(builder.add(part, part.type(unit - 1)), part.type(-unit))


def least(builder, x, y):
    return builder.select(builder.icmp_signed("<", x, y), x, y)


def entry(builder, matrix, step, row, column, transposed=None):
    """The address of an entry of a matrix whose columns are `step` numbers apart, or of op(it)."""
    if transposed is not None:
        row, column = (
            builder.select(transposed, column, row),
            builder.select(transposed, row, column),
        )
    return builder.gep(matrix, [builder.add(row, builder.mul(column, step))])


def copy_transposed(builder, matrix, step, copy, rows, columns):
    """copy (columns, rows) = matrix (rows, columns)', whose columns are COPY_STEP and `step`
    numbers apart, in square blocks, or number by number where they are not whole."""
    side, copy_step = TURNED_SIDE, INDEX(COPY_STEP)
    vector = LLVM.VectorType(matrix.type.pointee, side)
    size = 4 if isinstance(vector.element, LLVM.FloatType) else 8

    def line(data, apart, row, column):
        return builder.bitcast(entry(builder, data, apart, row, column), vector.as_pointer())

    def moved(value, count):
        return builder.add(value, INDEX(count))

    def is_whole(start, stop):
        return builder.icmp_signed("<=", moved(start, side), stop)

    with (
        cgutils.for_range_slice(builder, INDEX(0), columns, INDEX(side)) as (column, _),
        cgutils.for_range_slice(builder, INDEX(0), rows, INDEX(side)) as (row, _),
        builder.if_else(
            builder.and_(is_whole(row, rows), is_whole(column, columns)), likely=True
        ) as (whole, rest),
    ):
        with whole:
            block = [
                builder.load(line(matrix, step, row, moved(column, j)), align=size)
                for j in range(side)
            ]
            for j, turned in enumerate(transposed_block(builder, block)):
                builder.store(turned, line(copy, copy_step, column, moved(row, j)), align=size)
        with (
            rest,
            cgutils.for_range_slice(
                builder, column, least(builder, moved(column, side), columns), INDEX(1)
            ) as (j, _),
            cgutils.for_range_slice(
                builder, row, least(builder, moved(row, side), rows), INDEX(1)
            ) as (i, _),
        ):
            value = builder.load(entry(builder, matrix, step, i, j))
            builder.store(value, entry(builder, copy, copy_step, j, i))


def transposed_block(builder, block):
    """The rows, as vectors, of a square matrix given by its columns: two of its quarters change
    places, then two quarters of each quarter, and so on."""
    side = len(block)
    half = side // 2
    while half:
        for j in range(side):
            if not j & half:
                left, right = block[j], block[j + half]
                lanes = LLVM.VectorType(LLVM.IntType(32), side)
                low = [i + (side - half if i & half else 0) for i in range(side)]
                high = [i + (side if i & half else half) for i in range(side)]
                block[j] = builder.shuffle_vector(left, right, lanes(low))
                block[j + half] = builder.shuffle_vector(left, right, lanes(high))
        half //= 2
    return block
