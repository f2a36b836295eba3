"""Functions of LLVM code that call a kernel for one part of its work, without Python."""

# mypy: allow-untyped-defs

from itertools import count

from llvmlite import ir
from numba import types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from .memory import word

LINE_SAMPLES = 8
"""Samples that come last in memory are cut at multiples of this, where a cache line begins."""
ARRAY_FIELDS = object.__basicsize__ // 8
"""The word of an array object where NumPy's PyArrayObject_fields begin: the address of the entries,
the number of axes, and the addresses of the lengths and strides of these."""
LENGTH, PARTS, KERNEL, PHASE, ARGUMENTS = range(5)
"""Places in the words that a part is called with; the arguments are the last of them."""
WORD = ir.IntType(64)
_serial_numbers = count()


@global_compiler_lock
def part_caller(kinds, codes):
    """Make a function (address of words, part) of C that calls a kernel with arguments of these
    types for one part and returns 1 if that failed; return its address."""
    context = cpu_target.target_context
    name = f"{__name__}.{next(_serial_numbers)}"  # support of other packages has others
    library = context.codegen().create_library(name)
    module = library.create_ir_module(name)
    function = ir.Function(module, ir.FunctionType(WORD, [WORD, WORD]), name)
    builder = ir.IRBuilder(function.append_basic_block())
    data, part = function.args
    length, parts, kernel, phase = (word(builder, data, WORD(place)) for place in range(ARGUMENTS))
    first, last = (
        _border(builder, length, number, parts, LINE_SAMPLES if "S" in codes else 1)
        for number in (part, builder.add(part, WORD(1)))
    )
    numbers = {"h": phase, "p": part, "n": parts, "f": first, "l": last}
    passed, place = [], ARGUMENTS
    for kind, code in zip(kinds, codes, strict=True):
        if code in numbers:
            passed.append(numbers[code])
            continue
        argument = word(builder, data, WORD(place))
        place += 1
        if isinstance(kind, types.Array):
            passed += _array_words(builder, kind, argument, code, first, last, part)
        else:
            passed.append(argument)
    packer = context.get_arg_packer(kinds)
    values = [_cast(builder, *pair) for pair in zip(passed, packer.argument_types, strict=True)]
    callee_type = context.call_conv.get_function_type(types.none, kinds)
    callee = builder.inttoptr(kernel, callee_type.as_pointer())
    arguments = packer.from_arguments(builder, values)
    status, _ = context.call_conv.call_function(builder, callee, types.none, kinds, arguments)
    builder.ret(builder.zext(status.is_error, WORD))
    library.add_ir_module(module)
    library.finalize()
    return library.get_pointer_to_function(name)


def _border(builder, length, number, parts, unit):
    """Compute the first row of a part, a multiple of `unit`; the length after the last part."""
    row = builder.sdiv(builder.mul(length, number), parts)
    row = builder.sub(row, builder.srem(row, WORD(unit)))
    return builder.select(builder.icmp_signed("==", number, parts), length, row)


def _array_words(builder, kind, array, code, first, last, part):
    """List Numba's words of an array, or of its rows or entry for the part: no owner, the number of
    entries, the bytes of an entry, the address, lengths, strides."""
    fields = [word(builder, array, WORD(ARRAY_FIELDS + field)) for field in range(4)]
    address, axes = fields[0], kind.ndim + (code == "o")
    lengths, strides = (
        [word(builder, pointer, WORD(axis)) for axis in range(axes)] for pointer in fields[2:]
    )
    if code != "w":
        offset = builder.mul(part if code == "o" else first, strides[0])
        address = builder.add(address, offset)
    if code == "o":
        del lengths[0], strides[0]
    elif code != "w":
        lengths[0] = builder.sub(last, first)
    entries = WORD(1)
    for axis_length in lengths:
        entries = builder.mul(entries, axis_length)
    item = WORD(kind.dtype.bitwidth // 8)
    return [WORD(0), WORD(0), entries, item, address, *lengths, *strides]


def _cast(builder, value, kind):
    """Convert a word to a pointer, an integer or a float of LLVM type `kind`."""
    if isinstance(kind, ir.PointerType):
        return builder.inttoptr(value, kind)
    if isinstance(kind, ir.FloatType):
        return builder.bitcast(builder.trunc(value, ir.IntType(32)), kind)
    return builder.bitcast(value, kind) if kind != WORD else value
