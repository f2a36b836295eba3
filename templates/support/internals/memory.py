"""Arrays of compiled code: checks, views, the memory of work arrays, words that threads share, and
functions of LLVM code that call a kernel for one part of its work, without Python.

All work arrays are allocated at once. malloc returns large blocks to the system and requests them
again in the next call, page by page, which takes as long as many kernels. But it keeps free memory
up to twice the largest block freed so far, if that is below 32 MB. So one block of twice their size
holds all arrays: its other half is never touched, but raises this limit for the results, which are
freed beside it. A small block is on the stack. Numba's own arrays would be reference-counted.
"""

# mypy: allow-untyped-defs, disable-error-code=call-arg

from itertools import count

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.callconv import RETCODE_USEREXC
from numba.core.compiler_lock import global_compiler_lock
from numba.core.imputils import impl_ret_borrowed, impl_ret_new_ref
from numba.core.registry import cpu_target
from numba.core.typing.npydecl import parse_dtype
from numba.extending import intrinsic

from .functions import call_compiled, call_named, compiled, short_loop

LINE_BYTES = 64
"""Bytes of a cache line. Arrays begin with a line, and no two at the same place of a page."""
MAX_STACK_BYTES = 8192
"""Most bytes of work arrays on the calling thread's stack."""
MAX_DOUBLED_BYTES = 1 << 24
"""Most bytes of work arrays for which twice the memory is allocated."""
IMPOSSIBLE_BYTES = 1 << 62
"""More bytes than any machine has, so that the allocation fails with MemoryError."""
MAX_NAMED_PAIRS = 400
"""Most pairs of arrays for which the error names both arrays that share memory: each pair has its
text in the code, and a Hessian by seven inputs has 1,500 pairs."""
LINE_SAMPLES = 8
"""Samples that come last in memory are cut at multiples of this, where a cache line begins."""
ARRAY_FIELDS = object.__basicsize__ // 8
"""The word of an array object where NumPy's PyArrayObject_fields begin: the address of the entries,
the number of axes, and the addresses of the lengths and strides of these."""
KERNEL, LENGTH, PARTS, BLOCK, ARGUMENTS = range(5)
"""Places in the words that a part is called with; the arguments are the last of them."""
WORD = ir.IntType(64)
_serial_numbers = count()
BYTES = ir.IntType(8).as_pointer()


@intrinsic(prefer_literal=True)
def _require_arrays(context, owner, names, arrays):
    """Check the types of arguments while a kernel is compiled. Raises ValueError for an array that
    is not C-contiguous, TypeError for an argument that is no array of the one float type."""
    reals = {kind.dtype for kind in arrays if isinstance(kind, types.Array)}
    for name, kind in zip(names.literal_value.split(), arrays, strict=True):
        if not isinstance(kind, types.Array) or kind.dtype not in (types.float32, types.float64):
            raise TypeError(
                f"{owner.literal_value}: argument {name} of a kernel is {kind}; "
                "expected an array of float64 or float32"
            )
        if len(reals) > 1:
            raise TypeError(
                f"{owner.literal_value}: the arrays given to a kernel are of different types "
                f"({', '.join(sorted(map(str, reals)))}); expected one type"
            )
        if kind.layout != "C":
            raise ValueError(
                f"{owner.literal_value}: argument {name} of a kernel is {kind}; "
                "expected a C-contiguous array, as np.ascontiguousarray makes it"
            )

    def generate(context, builder, signature, values):
        return context.get_dummy_value()

    return types.void(owner, names, arrays), generate


@intrinsic(prefer_literal=True)
def _require_shapes(context, owner, names, arrays, shapes, inputs):
    """Check the arrays in a call of a kernel. Raises ValueError for an array of another shape than
    in `shapes`, and if a result, an array from position `inputs` on, shares memory with another
    array."""
    labels = names.literal_value.split()
    for name, kind, shape in zip(labels, arrays, shapes, strict=True):
        if kind.ndim != len(shape):
            raise ValueError(
                f"{owner.literal_value}: argument {name} of a kernel has {kind.ndim} axes; "
                f"expected {len(shape)}"
            )

    count, first_result = len(labels), inputs.literal_value
    names_both = (count - first_result) * count <= MAX_NAMED_PAIRS

    def problem(later, earlier):
        if earlier == later:
            return f"{labels[later]} of a kernel has another shape than expected"
        name = labels[earlier] if names_both else "another argument"
        return f"{labels[later]} of a kernel shares memory with {name}"

    def generate(context, builder, signature, values):
        word = context.get_value_type(types.intp)
        blocks = cgutils.alloca_once(builder, word, 2 * count)
        arrays_given, expected = (cgutils.unpack_tuple(builder, value) for value in values[2:4])
        number = word(-1)
        for place in reversed(range(count)):
            array = context.make_array(arrays[place])(context, builder, arrays_given[place])
            axes = cgutils.unpack_tuple(builder, array.shape)
            lengths = places(context, builder, expected[place], shapes[place])
            for axis, length in zip(axes, lengths, strict=True):
                differs = builder.icmp_signed("!=", axis, length)
                number = builder.select(differs, word(place * (count + 1)), number)
            start = builder.ptrtoint(array.data, word)
            stop = builder.add(start, builder.mul(array.nitems, array.itemsize))
            for end, value in enumerate((start, stop)):
                builder.store(value, builder.gep(blocks, [word(2 * place + end)]))
        kinds = types.Array(types.intp, 2, "C"), types.intp
        pairs = view(context, builder, kinds[0], blocks, [word(count), word(2)])
        passed = [pairs, word(first_result)]
        overlap = call_compiled(context, builder, find_overlap, kinds, passed)
        number = builder.select(builder.icmp_signed("<", number, word(0)), overlap, number)
        with builder.if_then(builder.icmp_signed(">=", number, word(0)), likely=False):
            texts = [
                f"{owner.literal_value}: argument {problem(later, min(earlier, later))}"
                for later in range(count)
                for earlier in range(count)
            ]
            raise_one(context, builder, ValueError, texts, number)
        return context.get_dummy_value()

    return types.void(owner, names, arrays, shapes, inputs), generate


@compiled()
def find_overlap(blocks, first_result):
    """Find two blocks of memory (start, stop) with a common byte, of which the later one is a
    result; return later * len(blocks) + earlier, or -1 if there are none."""
    overlap = -1
    for later in range(first_result, len(blocks)):
        start, stop = blocks[later, 0], blocks[later, 1]
        for earlier in range(later):
            short_loop(earlier)
            begin, end = blocks[earlier, 0], blocks[earlier, 1]
            # an empty block overlaps none; no branch, as correct calls would never take it
            meets = start < end and begin < stop and start < stop and begin < end
            overlap = later * len(blocks) + earlier if meets else overlap
    return overlap


def raise_one(context, builder, error, texts, number):
    """Raise an error with texts[number], by one exit: LLVM takes 4 ms for each in a function."""
    api = context.get_python_api(builder)
    infos = [api.serialize_object((error, (text,), None)) for text in texts]
    kind = ir.ArrayType(infos[0].type, len(infos))
    table = cgutils.global_constant(builder, "problems", ir.Constant(kind, infos))
    info = builder.load(builder.gep(table, [number.type(0), number]))
    builder.store(info, context.call_conv._get_excinfo_argument(builder.function))
    builder.ret(RETCODE_USEREXC)


def places(context, builder, pair, kinds):
    """Convert the entries of a tuple of integers of these types to offsets in memory."""
    entries = zip(cgutils.unpack_tuple(builder, pair), kinds, strict=True)
    return [context.cast(builder, entry, kind, types.intp) for entry, kind in entries]


def view(context, builder, kind, data, axes, owner=None):
    """Make a C-contiguous array of a type and of these lengths at an address in memory, which
    `owner` keeps alive, or the caller."""
    # the import takes 0.1 s, which only processes that compile have to wait for
    from numba.np.arrayobj import populate_array

    item = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
    steps = [item] if axes else []
    for length in axes[:0:-1]:
        steps.insert(0, builder.mul(steps[0], length))
    array = context.make_array(kind)(context, builder)
    data = builder.bitcast(data, array.data.type)
    populate_array(array, data, axes, steps, item, owner)
    return array._getvalue()


@intrinsic
def shaped(context, array, shape):
    """View a C-contiguous array in another shape. The checks of `reshape` take longer than many
    kernels, and longer to compile."""
    kind = types.Array(array.dtype, len(shape), "C", readonly=not array.mutable)

    def generate(context, builder, signature, values):
        source = context.make_array(signature.args[0])(context, builder, values[0])
        axes = cgutils.unpack_tuple(builder, values[1])
        result = view(context, builder, kind, source.data, axes, source.meminfo)
        return impl_ret_borrowed(context, builder, kind, result)

    return kind(array, shape), generate


def _allocation(is_zero):
    """Make a function of compiled code that allocates an array, which Numba counts references
    to."""

    def allocate(context, shape, real):
        kind = types.Array(parse_dtype(real), len(shape), "C")

        def generate(context, builder, signature, values):
            # the import takes 0.1 s, which only processes that compile have to wait for
            from numba.np.arrayobj import _empty_nd_impl

            axes = places(context, builder, values[0], signature.args[0])
            array = _empty_nd_impl(context, builder, kind, axes)
            if is_zero:
                size = builder.mul(array.nitems, array.itemsize)
                cgutils.memset(builder, array.data, size, 0)
            return impl_ret_new_ref(context, builder, kind, array._getvalue())

        return kind(shape, real), generate

    return intrinsic(allocate)


empty, zeros = _allocation(is_zero=False), _allocation(is_zero=True)
"""`np.empty` and `np.zeros` of a tuple of lengths and a type; those are compiled functions, 30 to
90 ms for each number of axes and type."""


@intrinsic
def of_one_type(context, arrays):
    """Return a tuple of arrays, of which some may be written to, as a tuple of arrays that may not,
    over which loops run."""
    kind = types.UniTuple(arrays[0].copy(readonly=True), len(arrays))

    def generate(context, builder, signature, values):
        entries = cgutils.unpack_tuple(builder, values[0])
        result = context.make_tuple(builder, kind, entries)
        return impl_ret_borrowed(context, builder, kind, result)

    return kind(arrays), generate


@intrinsic
def copy_entries(context, source, target):
    """Copy a C-contiguous array to another one of its shape and type, which does not overlap. The
    vector code of a loop would take twenty times as long to compile."""

    def generate(context, builder, signature, values):
        old, new = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, values, strict=True)
        )
        cgutils.raw_memcpy(builder, new.data, old.data, new.nitems, new.itemsize)
        return context.get_dummy_value()

    return types.void(source, target), generate


@intrinsic
def work_arrays(context, like, shapes, integers):
    """Allocate arrays of `shapes` (a tuple of tuples) and the type of `like`, and of the shapes
    `integers` and 32-bit integers, with undefined entries. Returns the arrays and their memory,
    which `give_back` frees."""
    kinds = [types.Array(like.dtype, len(shape), "C") for shape in shapes]
    kinds += [types.Array(types.int32, len(shape), "C") for shape in integers]
    results = types.Tuple([*kinds, types.intp])

    def generate(context, builder, signature, values):
        word = context.get_value_type(types.intp)
        requested = [pair for value in values[1:] for pair in cgutils.unpack_tuple(builder, value)]
        lengths = [
            places(context, builder, shape, kinds_of_lengths)
            for shape, kinds_of_lengths in zip(requested, (*shapes, *integers), strict=True)
        ]
        overflow = context.get_constant(types.boolean, False)

        def checked(operation, left, right):
            nonlocal overflow
            pair = operation(left, right)
            overflow = builder.or_(overflow, builder.extract_value(pair, 1))
            return builder.extract_value(pair, 0)

        starts, total = [], word(0)
        for kind, axes in zip(kinds, lengths, strict=True):
            starts.append(opaque(builder, total))
            size = word(kind.dtype.bitwidth // 8)
            for length in axes:
                size = checked(builder.smul_with_overflow, size, length)
            lines = builder.add(builder.udiv(size, word(LINE_BYTES)), word(2))
            total = checked(builder.sadd_with_overflow, total, builder.mul(lines, word(LINE_BYTES)))
        total = builder.select(overflow, word(IMPOSSIBLE_BYTES), total)
        memory, first_line = allocated(context, builder, total)
        parts = [
            view(context, builder, kind, cgutils.pointer_add(builder, first_line, start), axes)
            for kind, start, axes in zip(kinds, starts, lengths, strict=True)
        ]
        return context.make_tuple(builder, results, [*parts, memory])

    return results(like, shapes, integers), generate


def opaque(builder, number):
    """Hide from LLVM how a number is computed, unless it is a constant. The offset of a work array
    is a sum over all arrays before it, and loop strength reduction rewrites the sum for each
    address in a loop: that took three quarters of the time to compile kernels of 30 arrays."""
    word = number.type
    is_constant = call_named(builder, f"llvm.is.constant.i{word.width}", ir.IntType(1), [number])
    hidden = builder.asm(ir.FunctionType(word, [word]), "", "=r,0", [number], side_effect=False)
    return builder.select(is_constant, number, hidden)


@intrinsic
def heap_array(context, like):
    """Allocate an array of the shape and type of `like` that outlives the calling function, entries
    undefined. Returns it and its memory, which has to be given back."""
    kind = types.Array(like.dtype, like.ndim, "C")

    def generate(context, builder, signature, values):
        array = context.make_array(like)(context, builder, values[0])
        axes = cgutils.unpack_tuple(builder, array.shape)
        size = builder.mul(array.nitems, array.itemsize)
        memory, first_line = allocated(context, builder, size, max_stack_bytes=0)
        made = view(context, builder, kind, first_line, axes)
        return context.make_tuple(builder, signature.return_type, [made, memory])

    return types.Tuple((kind, types.intp))(like), generate


def allocated(context, builder, total, max_stack_bytes=MAX_STACK_BYTES):
    """Allocate memory. Returns its address, or 0 for the stack, and a pointer to its first line,
    from which the offsets of all arrays count: else the compiler could not tell them apart."""
    word = total.type
    with builder.goto_entry_block():
        stack = builder.alloca(BYTES.pointee, MAX_STACK_BYTES)  # not Numba's, which clears it
        stack.align = LINE_BYTES
    address = cgutils.alloca_once_value(builder, word(0))
    with builder.if_then(builder.icmp_unsigned(">", total, word(max_stack_bytes)), likely=False):
        is_doubled = builder.icmp_unsigned("<", total, word(MAX_DOUBLED_BYTES))
        size = builder.select(is_doubled, builder.shl(total, word(1)), total)
        block = call_named(builder, "NRT_Allocate", BYTES, [builder.add(size, word(LINE_BYTES))])
        with builder.if_then(cgutils.is_null(builder, block), likely=False):
            message = ("there is no memory for the work arrays of a kernel",)
            context.call_conv.return_user_exc(builder, MemoryError, message)
        builder.store(builder.ptrtoint(block, word), address)
    memory = builder.load(address)
    line = builder.and_(builder.add(memory, word(LINE_BYTES - 1)), word(-LINE_BYTES))
    is_stack = builder.icmp_unsigned("==", memory, word(0))
    return memory, builder.select(is_stack, stack, builder.inttoptr(line, stack.type))


@intrinsic
def give_back(context, *memory):
    """Free the memory of arrays."""

    def generate(context, builder, signature, values):
        for address in cgutils.unpack_tuple(builder, values[0]):
            with builder.if_then(cgutils.is_not_null(builder, address), likely=False):
                call_named(builder, "NRT_Free", ir.VoidType(), [builder.inttoptr(address, BYTES)])
        return context.get_dummy_value()

    return types.void(types.StarArgTuple(memory)), generate


def atomic(operation):
    """Make the function (words, place, value) of kernels that changes a word atomically and returns
    its old value. operation: "add", or "xchg" for exchange."""

    @intrinsic
    def call(context, words, place, value):
        def generate(context, builder, signature, values):
            word = entry(context, builder, signature, values)
            return builder.atomic_rmw(operation, word, values[2], "seq_cst")

        return types.intp(words, types.intp, types.intp), generate

    return call


def entry(context, builder, signature, values):
    """Return the address of an entry of an array of words; `values` begin with array and index."""
    data = context.make_array(signature.args[0])(context, builder, values[0]).data
    return builder.gep(data, [values[1]])


@intrinsic
def look(context, words, place):
    """Load a word that other threads write, after a pause that yields a shared core."""

    def generate(context, builder, signature, values):
        if builder.module.triple.startswith(("x86", "i686")):
            call_named(builder, "llvm.x86.sse2.pause", ir.VoidType(), [])
        return builder.load_atomic(entry(context, builder, signature, values), "seq_cst", 8)

    return types.intp(words, types.intp), generate


@intrinsic
def invoke(context, function, data, part):
    """Compute a part by the function at an address; return 1 if it failed, else 0."""

    def generate(context, builder, signature, values):
        word = context.get_value_type(types.intp)
        pointer = ir.FunctionType(word, [word, word]).as_pointer()
        return builder.call(builder.inttoptr(values[0], pointer), values[1:])

    return types.intp(types.intp, types.intp, types.intp), generate


def word(builder, address, place):
    """Load the 64-bit word at a place, counted in words, from an address."""
    pointer = builder.inttoptr(address, ir.IntType(64).as_pointer())
    return builder.load(builder.gep(pointer, [place]))


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
    kernel, length, parts, block = (word(builder, data, WORD(place)) for place in range(ARGUMENTS))
    first, last = (
        _border(builder, length, number, parts, LINE_SAMPLES if "S" in codes else 1)
        for number in (part, builder.add(part, WORD(1)))
    )
    numbers = {"p": part, "n": parts, "f": first, "l": last, "b": block}
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
    if code in "sSo":
        offset = builder.mul(part if code == "o" else first, strides[0])
        address = builder.add(address, offset)
    if code == "o":
        del lengths[0], strides[0]
    elif code in "sS":
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
