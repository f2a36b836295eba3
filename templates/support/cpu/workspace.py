"""The memory of a kernel's work arrays, allocated at once; memory written past the cache.

malloc gives large blocks back to the system and asks for them again in the next call, page by
page, which takes as long as much of what kernels do. It learns from the blocks that are freed: it
keeps up to twice the largest so far, if that is below 32 MB. So there is one block for all arrays,
of twice their size: the other half is never touched, and leaves room for the results, which are
freed beside it. A small block lies on the stack. Numba's own arrays would have their references
counted.
"""

# mypy: allow-untyped-defs

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

from .base import LLVM

LINE = 64
"""Bytes of a cache line; arrays begin with one, and no two at the same place of a page."""
ON_STACK = 8192
"""Bytes up to which they lie on the calling thread's stack."""
MOST_KEPT = 1 << 24
"""Bytes up to which twice as many are asked for."""
TOO_LARGE = 1 << 62
"""Bytes that no machine has: MemoryError."""


@intrinsic
def work_arrays(context, like, shapes, integers):
    """Arrays of these shapes (a tuple of tuples) and of the type of `like`, and of these shapes and
    of 32-bit integers, entries undefined; last the memory, which has to be given back."""
    kinds = [types.Array(like.dtype, len(shape), "C") for shape in shapes]
    kinds += [types.Array(types.int32, len(shape), "C") for shape in integers]
    made = types.Tuple([*kinds, types.intp])

    def generate(context, builder, signature, values):
        word = context.get_value_type(types.intp)
        given = [pair for value in values[1:] for pair in cgutils.unpack_tuple(builder, value)]
        lengths = [
            [
                context.cast(builder, length, length_kind, types.intp)
                for length, length_kind in zip(
                    cgutils.unpack_tuple(builder, shape), kind, strict=True
                )
            ]
            for shape, kind in zip(given, (*shapes, *integers), strict=True)
        ]
        overflow = context.get_constant(types.boolean, False)

        def checked(operation, one, two):
            nonlocal overflow
            pair = operation(one, two)
            overflow = builder.or_(overflow, builder.extract_value(pair, 1))
            return builder.extract_value(pair, 0)

        starts, total = [], word(0)
        for kind, axes in zip(kinds, lengths, strict=True):
            starts.append(total)
            size = word(kind.dtype.bitwidth // 8)
            for length in axes:
                size = checked(builder.smul_with_overflow, size, length)
            lines = builder.add(builder.udiv(size, word(LINE)), word(2))
            total = checked(builder.sadd_with_overflow, total, builder.mul(lines, word(LINE)))
        total = builder.select(overflow, word(TOO_LARGE), total)
        memory, start = taken(context, builder, total)
        parts = []
        for kind, offset, axes in zip(kinds, starts, lengths, strict=True):
            array = context.make_array(kind)(context, builder)
            item = word(kind.dtype.bitwidth // 8)
            strides = [item] if axes else []
            for length in axes[:0:-1]:
                strides.insert(0, builder.mul(strides[0], length))
            place = builder.bitcast(cgutils.pointer_add(builder, start, offset), array.data.type)
            arrayobj.populate_array(array, place, axes, strides, item, None)
            parts.append(array._getvalue())
        return context.make_tuple(builder, made, [*parts, memory])

    return made(like, shapes, integers), generate


def taken(context, builder, total):
    """The address of memory of so many bytes, or 0 for the stack, and a pointer to its first line.
    The places of all arrays count from there: else the compiler could not tell them apart."""
    word = total.type
    with builder.goto_entry_block():
        stack = builder.alloca(LLVM.IntType(8), ON_STACK)  # not Numba's, which clears it
        stack.align = LINE
    address = cgutils.alloca_once_value(builder, word(0))
    with builder.if_then(builder.icmp_unsigned(">", total, word(ON_STACK)), likely=False):
        kept = builder.icmp_unsigned("<", total, word(MOST_KEPT))
        size = builder.select(kept, builder.shl(total, word(1)), total)
        kind = LLVM.FunctionType(LLVM.IntType(8).as_pointer(), [word])
        allocate = cgutils.get_or_insert_function(builder.module, kind, "NRT_Allocate")
        found = builder.call(allocate, [builder.add(size, word(LINE))])
        with builder.if_then(cgutils.is_null(builder, found), likely=False):
            message = ("there is no memory for the work arrays of a kernel",)
            context.call_conv.return_user_exc(builder, MemoryError, message)
        builder.store(builder.ptrtoint(found, word), address)
    memory = builder.load(address)
    line = builder.and_(builder.add(memory, word(LINE - 1)), word(-LINE))
    is_stack = builder.icmp_unsigned("==", memory, word(0))
    return memory, builder.select(is_stack, stack, builder.inttoptr(line, stack.type))


@intrinsic
def give_back(context, memory):
    """Let others have the memory of work arrays."""

    def generate(context, builder, signature, values):
        byte = LLVM.IntType(8).as_pointer()
        kind = LLVM.FunctionType(LLVM.VoidType(), [byte])
        with builder.if_then(cgutils.is_not_null(builder, values[0]), likely=False):
            free = cgutils.get_or_insert_function(builder.module, kind, "NRT_Free")
            builder.call(free, [builder.inttoptr(values[0], byte)])
        return context.get_dummy_value()

    return types.void(types.intp), generate


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
