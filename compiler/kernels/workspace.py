"""The memory of a kernel's work arrays, allocated at once; memory written past the cache.

malloc gives large blocks back to the system and asks for them again in the next call, page by
page, which takes as long as much of what kernels do. It learns from the blocks that are freed: it
keeps up to twice the largest so far, if that is below 32 MB. So there is one block for all arrays,
of twice their size: the other half is never touched, and leaves room for the results, which are
freed beside it.
"""

# mypy: allow-untyped-defs

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

from derivatrix.compiler.kernels.base import LLVM

LINE = 64
"""Bytes of a cache line; arrays begin with one, and no two at the same place of a page."""
MOST_KEPT = 1 << 24
"""Bytes up to which twice as many are asked for."""
TOO_LARGE = 1 << 62
"""Bytes that no machine has: MemoryError."""


@intrinsic
def work_arrays(context, like, shapes):
    """Arrays of these shapes (a tuple of tuples) and of the type of `like`, entries undefined."""
    kinds = [types.Array(like.dtype, len(shape), "C") for shape in shapes]

    def generate(context, builder, signature, values):
        word = context.get_value_type(types.intp)
        item = word(like.dtype.bitwidth // 8)
        lengths = [
            [
                context.cast(builder, length, length_kind, types.intp)
                for length, length_kind in zip(
                    cgutils.unpack_tuple(builder, shape), kind, strict=True
                )
            ]
            for shape, kind in zip(cgutils.unpack_tuple(builder, values[1]), shapes, strict=True)
        ]
        overflow = context.get_constant(types.boolean, False)

        def checked(operation, one, two):
            nonlocal overflow
            pair = operation(one, two)
            overflow = builder.or_(overflow, builder.extract_value(pair, 1))
            return builder.extract_value(pair, 0)

        starts, total = [], word(0)
        for axes in lengths:
            starts.append(total)
            size = item
            for length in axes:
                size = checked(builder.smul_with_overflow, size, length)
            lines = builder.add(builder.udiv(size, word(LINE)), word(2))
            total = checked(builder.sadd_with_overflow, total, builder.mul(lines, word(LINE)))
        kept = builder.icmp_signed("<", total, word(MOST_KEPT))
        total = builder.select(kept, builder.shl(total, word(1)), total)
        total = builder.select(overflow, word(TOO_LARGE), total)
        align = context.get_constant(types.uint32, LINE)
        memory = context.nrt.meminfo_alloc_aligned(builder, total, align)
        data = context.nrt.meminfo_data(builder, memory)
        made = []
        for kind, start, axes in zip(kinds, starts, lengths, strict=True):
            array = context.make_array(kind)(context, builder)
            strides = [item]
            for length in axes[:0:-1]:
                strides.insert(0, builder.mul(strides[0], length))
            place = builder.bitcast(cgutils.pointer_add(builder, data, start), array.data.type)
            arrayobj.populate_array(array, place, axes, strides, item, memory)
            context.nrt.incref(builder, kind, array._getvalue())
            made.append(array._getvalue())
        context.nrt.decref(builder, types.MemInfoPointer(types.voidptr), memory)
        return context.make_tuple(builder, types.Tuple(kinds), made)

    return types.Tuple(kinds)(like, shapes), generate


@intrinsic
def stream(context, array, indices, value):
    """array[indices] = value, past the cache."""

    def generate(context, builder, signature, values):
        kind = signature.args[0]
        item = context.cast(builder, values[2], signature.args[2], kind.dtype)
        axes = cgutils.unpack_tuple(builder, values[1])
        place = cgutils.get_item_pointer(
            context, builder, kind, context.make_array(kind)(context, builder, values[0]), axes
        )
        one = builder.module.add_metadata([LLVM.Constant(LLVM.IntType(32), 1)])
        builder.store(item, place).set_metadata("nontemporal", one)
        return context.get_dummy_value()

    return types.void(array, indices, value), generate
