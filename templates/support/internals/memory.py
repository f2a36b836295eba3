"""Arrays of compiled code: checks, views, the memory of work arrays, parts that threads do.

Work arrays are allocated at once. malloc gives large blocks back to the system and asks for them
again in the next call, page by page, which takes as long as much of what kernels do. It learns from
the blocks that are freed: it keeps up to twice the largest so far, if that is below 32 MB. So there
is one block for all arrays, of twice their size: the other half is never touched, and leaves room
for the results, which are freed beside it. A small block lies on the stack. Numba's own arrays
would have their references counted.
"""

# mypy: allow-untyped-defs, disable-error-code=call-arg

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.callconv import RETCODE_USEREXC
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic

from .functions import call_compiled, call_named, compiled, short_loop

BORDERS = 8
"""How many samples that come last in memory begin a line of the cache."""
LINE = 64
"""Bytes of a cache line; arrays begin with one, and no two at the same place of a page."""
ON_STACK = 8192
"""Bytes up to which they lie on the calling thread's stack."""
MOST_KEPT = 1 << 24
"""Bytes up to which twice as many are asked for."""
TOO_LARGE = 1 << 62
"""Bytes that no machine has: MemoryError."""
MAX_NAMED_PAIRS = 400
"""Pairs of arrays up to which both are named that share memory: each has a text of its own in the
code, and a Hessian by seven inputs has 1,500."""
BYTES = ir.IntType(8).as_pointer()


@intrinsic(prefer_literal=True)
def require_arrays(context, owner, names, arrays):
    """Raise, while a kernel is compiled, for an argument that it does not take: ValueError for an
    array that is not C-contiguous, TypeError for what is no array of the one float type."""
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
def require_shapes(context, owner, names, arrays, shapes, inputs):
    """Raise ValueError where a kernel is called with an array of another shape than the one in
    `shapes`, or where its results, the arrays from position `inputs` on, share memory with
    others."""
    labels = names.literal_value.split()
    for name, kind, shape in zip(labels, arrays, shapes, strict=True):
        if kind.ndim != len(shape):
            raise ValueError(
                f"{owner.literal_value}: argument {name} of a kernel has {kind.ndim} axes; "
                f"expected {len(shape)}"
            )

    count, first = len(labels), inputs.literal_value
    names_other = (count - first) * count <= MAX_NAMED_PAIRS

    def problem(later, other):
        if other == later:
            return f"{labels[later]} of a kernel has another shape than expected"
        name = labels[other] if names_other else "another argument"
        return f"{labels[later]} of a kernel shares memory with {name}"

    def generate(context, builder, signature, values):
        word = context.get_value_type(types.intp)
        blocks = cgutils.alloca_once(builder, word, 2 * count)
        given, expected = (cgutils.unpack_tuple(builder, value) for value in values[2:4])
        number = word(-1)
        for place in reversed(range(count)):
            array = context.make_array(arrays[place])(context, builder, given[place])
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
        passed = [view(context, builder, kinds[0], blocks, [word(count), word(2)]), word(first)]
        overlap = call_compiled(context, builder, find_overlap, kinds, passed)
        number = builder.select(builder.icmp_signed("<", number, word(0)), overlap, number)
        with builder.if_then(builder.icmp_signed(">=", number, word(0)), likely=False):
            texts = [
                f"{owner.literal_value}: argument {problem(later, min(other, later))}"
                for later in range(count)
                for other in range(count)
            ]
            raise_one(context, builder, ValueError, texts, number)
        return context.get_dummy_value()

    return types.void(owner, names, arrays, shapes, inputs), generate


@compiled(no_cpython_wrapper=True)
def find_overlap(blocks, first_result):
    """place * len(blocks) + other, for blocks of memory (start, stop) at these two places that have
    a common byte, of which the one at `place` is a result; -1 if there are none."""
    overlap = -1
    for place in range(first_result, len(blocks)):
        start, stop = blocks[place, 0], blocks[place, 1]
        for other in range(place):
            short_loop(other)
            begin, end = blocks[other, 0], blocks[other, 1]
            # a block of no bytes shares none; no statement is a branch that right calls never take
            meets = start < end and begin < stop and start < stop and begin < end
            overlap = place * len(blocks) + other if meets else overlap
    return overlap


def raise_one(context, builder, error, texts, number):
    """Raise an error with the text of a number. LLVM takes 4 ms for each way out of a function with
    a condition of its own."""
    api = context.get_python_api(builder)
    infos = [api.serialize_object((error, (text,), None)) for text in texts]
    kind = ir.ArrayType(infos[0].type, len(infos))
    table = cgutils.global_constant(builder, "problems", ir.Constant(kind, infos))
    info = builder.load(builder.gep(table, [number.type(0), number]))
    builder.store(info, context.call_conv._get_excinfo_argument(builder.function))
    builder.ret(RETCODE_USEREXC)


def places(context, builder, pair, kinds):
    """The entries of a tuple of integers of these types, as places in memory are counted."""
    entries = zip(cgutils.unpack_tuple(builder, pair), kinds, strict=True)
    return [context.cast(builder, entry, kind, types.intp) for entry, kind in entries]


def view(context, builder, kind, data, axes, owner=None):
    """A C-contiguous array of a type and of these lengths, at an address in memory that `owner`
    keeps, or somebody else."""
    # 0.1 s to import, which only those wait for who compile
    from numba.np.arrayobj import populate_array

    item = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
    steps = [item] if axes else []
    for length in axes[:0:-1]:
        steps.insert(0, builder.mul(steps[0], length))
    made = context.make_array(kind)(context, builder)
    data = builder.bitcast(data, made.data.type)
    populate_array(made, data, axes, steps, item, owner)
    return made._getvalue()


@intrinsic
def shaped(context, array, shape):
    """A C-contiguous array as one of another shape. What `reshape` finds out takes longer than many
    a kernel, and longer to compile."""
    kind = types.Array(array.dtype, len(shape), "C", readonly=not array.mutable)

    def generate(context, builder, signature, values):
        given = context.make_array(signature.args[0])(context, builder, values[0])
        axes = cgutils.unpack_tuple(builder, values[1])
        made = view(context, builder, kind, given.data, axes, given.meminfo)
        return impl_ret_borrowed(context, builder, kind, made)

    return kind(array, shape), generate


@intrinsic
def copy_entries(context, source, target):
    """target = source, of a C-contiguous array of one shape and type, and apart in memory. Vector
    code of a loop that does so takes twenty times as long to compile."""

    def generate(context, builder, signature, values):
        given, filled = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, values, strict=True)
        )
        cgutils.raw_memcpy(builder, filled.data, given.data, filled.nitems, filled.itemsize)
        return context.get_dummy_value()

    return types.void(source, target), generate


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
            places(context, builder, shape, kinds_of_lengths)
            for shape, kinds_of_lengths in zip(given, (*shapes, *integers), strict=True)
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
        memory, first = taken(context, builder, total)
        parts = [
            view(context, builder, kind, cgutils.pointer_add(builder, first, start), axes)
            for kind, start, axes in zip(kinds, starts, lengths, strict=True)
        ]
        return context.make_tuple(builder, made, [*parts, memory])

    return made(like, shapes, integers), generate


def taken(context, builder, total):
    """The address of memory of so many bytes, or 0 for the stack, and a pointer to its first line.
    The places of all arrays count from there: else the compiler could not tell them apart."""
    word = total.type
    with builder.goto_entry_block():
        stack = builder.alloca(BYTES.pointee, ON_STACK)  # not Numba's, which clears it
        stack.align = LINE
    address = cgutils.alloca_once_value(builder, word(0))
    with builder.if_then(builder.icmp_unsigned(">", total, word(ON_STACK)), likely=False):
        kept = builder.icmp_unsigned("<", total, word(MOST_KEPT))
        size = builder.select(kept, builder.shl(total, word(1)), total)
        found = call_named(builder, "NRT_Allocate", BYTES, [builder.add(size, word(LINE))])
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
        with builder.if_then(cgutils.is_not_null(builder, values[0]), likely=False):
            call_named(builder, "NRT_Free", ir.VoidType(), [builder.inttoptr(values[0], BYTES)])
        return context.get_dummy_value()

    return types.void(types.intp), generate


def atomic(operation):
    """The function (words, place, value) of kernels that changes a word, at once for all threads,
    and returns what it was. operation: "add", or "xchg" for exchange."""

    @intrinsic
    def call(context, words, place, value):
        def generate(context, builder, signature, values):
            word = entry(context, builder, signature, values)
            return builder.atomic_rmw(operation, word, values[2], "seq_cst")

        return types.intp(words, types.intp, types.intp), generate

    return call


def entry(context, builder, signature, values):
    """The address of an entry of an array of words, the first two of some values."""
    data = context.make_array(signature.args[0])(context, builder, values[0]).data
    return builder.gep(data, [values[1]])


@intrinsic
def look(context, words, place):
    """A word as it is now, after a pause that leaves a shared core to others."""

    def generate(context, builder, signature, values):
        if builder.module.triple.startswith(("x86", "i686")):
            call_named(builder, "llvm.x86.sse2.pause", ir.VoidType(), [])
        return builder.load_atomic(entry(context, builder, signature, values), "seq_cst", 8)

    return types.intp(words, types.intp), generate


@intrinsic
def invoke(context, function, data, part):
    """Do a part of some work: 1 if it failed."""

    def generate(context, builder, signature, values):
        word = context.get_value_type(types.intp)
        pointer = ir.FunctionType(word, [word, word]).as_pointer()
        return builder.call(builder.inttoptr(values[0], pointer), values[1:])

    return types.intp(types.intp, types.intp, types.intp), generate


@intrinsic(prefer_literal=True)
def part_of(context, kernel, codes, given, length, count):
    """The addresses of a function that does a part of what a kernel does, which `invoke` calls, and
    of what it needs, until the caller returns, and has the arrays that are given.

    kernel: its address, which it was compiled for long before: it would be compiled again here.
    codes: where the kernel's arguments come from, a letter each. In order from those given: s, an
    array's part along its first axis, of that length; S, the same, starting at a multiple of
    BORDERS; o, the entry of an array that belongs to the part; w, the whole. p: the number of the
    part; n: how many there are; f, l: where it starts and stops in that length. Arrays that are cut
    are C-contiguous.
    """
    letters = codes.literal_value
    unit = BORDERS if "S" in letters else 1
    taken, kinds = iter(given), list[types.Type]()
    for letter in letters:
        if letter in "pnfl":
            kinds.append(types.intp)
            continue
        kind = next(taken)
        is_entry = letter == "o"
        kinds.append(types.Array(kind.dtype, kind.ndim - 1, "C") if is_entry else kind)

    def generate(context, builder, signature, values):
        word = context.get_value_type(types.intp)
        held = cgutils.pack_struct(builder, [values[0], *values[2:]])
        memory = cgutils.alloca_once_value(builder, held)
        function = ir.Function(
            builder.module,
            ir.FunctionType(word, [word, word]),
            f"part_{len(builder.module.functions)}_of_{builder.function.name}",
        )
        function.linkage = "internal"
        inner = ir.IRBuilder(function.append_basic_block())
        data, part = function.args
        data = inner.load(inner.inttoptr(data, memory.type))
        address, arrays, length, count = (inner.extract_value(data, place) for place in range(4))

        def border(number):
            place = inner.sdiv(inner.mul(length, number), count)
            at_line = inner.sub(place, inner.srem(place, word(unit)))
            return inner.select(inner.icmp_signed("==", number, count), length, at_line)

        first, last = border(part), border(inner.add(part, word(1)))
        numbers = {"p": part, "n": count, "f": first, "l": last}

        def some(kind, whole_kind, value, letter):
            """The entries of an array from first to last, or the one that belongs to the part."""
            whole = context.make_array(whole_kind)(context, inner, value)
            axes, steps = (
                cgutils.unpack_tuple(inner, pair) for pair in (whole.shape, whole.strides)
            )
            is_entry = letter == "o"
            start = inner.mul(part if is_entry else first, steps[0])
            place = cgutils.pointer_add(inner, whole.data, start)
            lengths = axes[1:] if is_entry else [inner.sub(last, first), *axes[1:]]
            return view(context, inner, kind, place, lengths, whole.meminfo)

        passed = []
        left = zip(signature.args[2], cgutils.unpack_tuple(inner, arrays), strict=True)
        for letter, kind in zip(letters, kinds, strict=True):
            if letter in numbers:
                passed.append(numbers[letter])
                continue
            whole_kind, value = next(left)
            passed.append(value if letter == "w" else some(kind, whole_kind, value, letter))
        called = context.call_conv.get_function_type(types.none, kinds)
        callee = inner.inttoptr(address, called.as_pointer())
        status, _ = context.call_conv.call_function(inner, callee, types.none, kinds, passed)
        inner.ret(inner.zext(status.is_error, word))
        addresses = [builder.ptrtoint(pointer, word) for pointer in (function, memory)]
        return context.make_tuple(builder, signature.return_type, addresses)

    pair = types.UniTuple(types.intp, 2)
    return pair(types.intp, codes, given, types.intp, types.intp), generate
