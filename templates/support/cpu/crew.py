"""Threads that share the work of a kernel.

Threads of Python stay in compiled code for some ten microseconds after their last part of a work,
waiting for the next, and sleep then. Whoever has work offers it and does what nobody else takes: it
never waits for a thread to wake. Numba's own threads would end the process where two callers meet;
to hand work to threads of `concurrent.futures` takes 45 µs.
"""

# mypy: allow-untyped-defs, disable-error-code=call-arg

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj
from numba.np.numpy_support import from_dtype

from .base import LLVM, compiled

BUSY = 0
"""The word that is 1 while a caller has the helpers; each word has a cache line of its own."""
OPEN = 8
"""1 while helpers may join its work."""
FUNCTION = 16
"""The address of the function that does a part of the work."""
DATA = 24
"""The address of that function's arguments."""
COUNT = 32
"""How many parts the work has."""
NEXT = 40
"""The number of the next part that nobody has taken."""
HELPERS = 48
"""How many helpers are at it."""
FAILED = 56
"""1 if a part failed."""
BORDERS = 8
"""How many samples that come last in memory begin a line of the cache."""
WORDS = 64
"""How many numbers the words take."""
PATIENCE = 1000
"""How many times a thread looks for work before it sleeps; 20 to 60 µs."""


def atomic(operation):
    """The function (words, place, value) of kernels that changes a word, at once for all threads,
    and returns what it was."""

    @intrinsic
    def call(context, words, place, value):
        def generate(context, builder, signature, values):
            data = context.make_array(signature.args[0])(context, builder, values[0]).data
            return builder.atomic_rmw(
                operation, builder.gep(data, [values[1]]), values[2], "seq_cst"
            )

        return types.intp(words, types.intp, types.intp), generate

    return call


atomic_add = atomic("add")
atomic_exchange = atomic("xchg")


@intrinsic
def look(context, words, place):
    """A word as it is now, after a pause that leaves a shared core to others."""

    def generate(context, builder, signature, values):
        if builder.module.triple.startswith(("x86", "i686")):
            nothing = LLVM.FunctionType(LLVM.VoidType(), [])
            name = "llvm.x86.sse2.pause"
            builder.call(cgutils.get_or_insert_function(builder.module, nothing, name), [])
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        return builder.load_atomic(builder.gep(data, [values[1]]), "seq_cst", 8)

    return types.intp(words, types.intp), generate


@intrinsic
def invoke(context, function, data, part):
    """Do a part of some work: 1 if it failed."""

    def generate(context, builder, signature, values):
        word = context.get_value_type(types.intp)
        pointer = LLVM.FunctionType(word, [word, word]).as_pointer()
        return builder.call(builder.inttoptr(values[0], pointer), values[1:])

    return types.intp(types.intp, types.intp, types.intp), generate


@intrinsic(prefer_literal=True)
def part_of(context, kernel, codes, given, length, count):
    """What `share` takes: the addresses of a function for a part of what a kernel does, and of what
    it needs, until the caller returns, and has the arrays that are given.

    kernel: its address, which it was compiled for long before: it would be compiled again here.
    codes: where the kernel's arguments come from, a letter each. In order from those given: s, an
    array's part along its first axis, of that length; S, the same, starting at a multiple of
    BORDERS; o, the entry of an array that belongs to the part; w, the whole. p: the number of the
    part; n: how many there are; f, l: where it starts and stops in that length.
    """
    letters = codes.literal_value
    unit = BORDERS if "S" in letters else 1
    taken, kinds = iter(given), list[types.Type]()
    for letter in letters:
        if letter in "pnfl":
            kinds.append(types.intp)
        elif letter == "o":
            array = next(taken)
            kinds.append(types.Array(array.dtype, array.ndim - 1, "C"))
        else:
            kinds.append(next(taken))

    def generate(context, builder, signature, values):
        word = context.get_value_type(types.intp)
        held = cgutils.pack_struct(builder, [values[0], *values[2:]])
        memory = cgutils.alloca_once_value(builder, held)
        function = LLVM.Function(
            builder.module,
            LLVM.FunctionType(word, [word, word]),
            f"part_{len(builder.module.functions)}_of_{builder.function.name}",
        )
        function.linkage = "internal"
        inner = LLVM.IRBuilder(function.append_basic_block())
        data, part = function.args
        data = inner.load(inner.inttoptr(data, memory.type))
        address, arrays, length, count = (inner.extract_value(data, place) for place in range(4))

        def border(number):
            place = inner.sdiv(inner.mul(length, number), count)
            at_line = inner.sub(place, inner.srem(place, word(unit)))
            return inner.select(inner.icmp_signed("==", number, count), length, at_line)

        first, last = border(part), border(inner.add(part, word(1)))
        numbers = {"p": part, "n": count, "f": first, "l": last}

        def some(kind, value, letter):
            """The entries of an array from first to last, or the one that belongs to the part."""
            whole = context.make_array(kind)(context, inner, value)
            axes, steps = (
                cgutils.unpack_tuple(inner, pair) for pair in (whole.shape, whole.strides)
            )
            start = part if letter == "o" else first
            place = cgutils.pointer_add(inner, whole.data, inner.mul(start, steps[0]))
            if letter == "o":
                kind, axes, steps = types.Array(kind.dtype, kind.ndim - 1, "C"), axes[1:], steps[1:]
            else:
                axes = [inner.sub(last, first), *axes[1:]]
            made = context.make_array(kind)(context, inner)
            arrayobj.populate_array(made, place, axes, steps, whole.itemsize, whole.meminfo)
            return made._getvalue()

        passed = []
        left = zip(signature.args[2], cgutils.unpack_tuple(inner, arrays), strict=True)
        for letter in letters:
            if letter in numbers:
                passed.append(numbers[letter])
                continue
            kind, value = next(left)
            passed.append(value if letter == "w" else some(kind, value, letter))
        called = context.call_conv.get_function_type(types.none, kinds)
        callee = inner.inttoptr(address, called.as_pointer())
        status, _ = context.call_conv.call_function(inner, callee, types.none, kinds, passed)
        inner.ret(inner.zext(status.is_error, word))
        addresses = [builder.ptrtoint(pointer, word) for pointer in (function, memory)]
        return context.make_tuple(builder, signature.return_type, addresses)

    pair = types.UniTuple(types.intp, 2)
    return pair(types.intp, codes, given, types.intp, types.intp), generate


@compiled()
def take(words):
    """Do parts of what is offered as long as there are any."""
    function, data, count = words[FUNCTION], words[DATA], words[COUNT]
    while True:
        part = atomic_add(words, NEXT, 1)
        if part >= count:
            return
        if invoke(function, data, part):
            atomic_exchange(words, FAILED, 1)


@compiled()
def share(words, work, count):
    """Do all parts of some work with whoever helps; whether one of them failed."""
    function, data = work
    failed = 0
    if count == 1 or atomic_exchange(words, BUSY, 1):  # another thread has the helpers
        for part in range(count):
            failed |= invoke(function, data, part)
        return failed != 0
    words[FUNCTION], words[DATA], words[COUNT] = function, data, count
    atomic_exchange(words, FAILED, 0)
    atomic_exchange(words, NEXT, 0)
    atomic_exchange(words, OPEN, 1)
    take(words)
    atomic_exchange(words, OPEN, 0)
    while look(words, HELPERS):
        pass
    failed = words[FAILED]
    atomic_exchange(words, BUSY, 0)
    return failed != 0


@compiled()
def help_others(words):
    """Take part in what is offered until there has been nothing for some time; whether there was
    anything."""
    idle, helped = 0, False
    while idle < PATIENCE:
        idle += 1
        if look(words, OPEN) and look(words, NEXT) < words[COUNT]:
            atomic_add(words, HELPERS, 1)
            if look(words, OPEN):  # what was offered stays until all helpers have left
                take(words)
            atomic_add(words, HELPERS, -1)
            idle, helped = 0, True
    return helped


class _Shared:
    """What threads share the work of kernels by: a generated function, and the addresses of the
    kernels that do the parts, for single and double precision, once they are compiled.

    kernels: each with the types of its arguments, as "real:2" for an array of two axes, "real" for
    a number, and "intp".
    """

    def __init__(self, function, *kernels):
        self.function, self.kernels = function, kernels
        self.addresses = np.zeros((len(kernels), 2), np.int64)

    def __call__(self, real, words, *arguments):
        """Whether a part failed."""
        if not self.addresses[-1, real.itemsize // 8]:
            self.prepare(real)
        return self.function(words, self.addresses, *arguments)

    def prepare(self, real):
        """Compile the kernels for a type of float."""
        for place, (kernel, kinds) in enumerate(self.kernels):
            address = self.compiled(kernel, kinds, from_dtype(real))
            self.addresses[place, real.itemsize // 8] = address

    @staticmethod
    def compiled(kernel, kinds, real):
        """The address of a kernel."""
        arguments = []
        for kind in kinds.split():
            name, _, axes = kind.partition(":")
            entry = real if name == "real" else getattr(types, name)
            arguments.append(types.Array(entry, int(axes), "C") if axes else entry)
        made = kernel.get_compile_result(types.none(*arguments))
        return made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
