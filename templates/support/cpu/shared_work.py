"""Sharing of a kernel's work among threads, by an array of words in memory; calls of a kernel for
all parts of its work.

Helper threads that have computed a part wait for the next one in compiled code for 20 to 60 µs,
then sleep. The thread that offers work computes all parts that no helper takes, so that it never
waits for a helper to wake. Numba's own thread pool ends the process if two threads call it at once;
passing work to threads of `concurrent.futures` takes 45 µs.
"""

# mypy: allow-untyped-defs, disable-error-code=call-arg

import numpy as np
from numba import from_dtype, types

from ..internals.functions import address_of, compiled
from ..internals.memory import atomic, invoke, look
from ..internals.part_caller import PHASE, part_caller

BUSY = 0
"""Place of the word that is 1 while a caller has the helpers. Each word has its own cache line."""
OPEN = 8
"""1 while helpers may join the caller's work."""
FUNCTION = 16
"""The address of the function that computes a part of the work."""
DATA = 24
"""The address of the arguments of that function."""
COUNT = 32
"""The number of parts of the work."""
NEXT = 40
"""The number of the next part that nobody has taken."""
HELPERS = 48
"""The number of helpers that compute parts."""
FAILED = 56
"""1 if a part failed."""
WORDS = 64
"""The length of the array of words."""
MAX_LOOKS = 1000
"""Most times that a helper looks for work before it sleeps: 20 to 60 µs."""
ARGUMENT_CODES = "wsSo"
"""The codes of what a call passes; the others stand for numbers of the part."""


atomic_add = atomic("add")
atomic_exchange = atomic("xchg")


@compiled()
def claim(words):
    """Compute parts of the offered work until none is left."""
    function, data, count = words[FUNCTION], words[DATA], words[COUNT]
    while True:
        part = atomic_add(words, NEXT, 1)
        if part >= count:
            return
        if invoke(function, data, part):
            atomic_exchange(words, FAILED, 1)


@compiled(is_called_from_python=True)
def submit(words, function, arguments, count):
    """Compute all parts of some work, with the helpers if no other thread has them; return whether
    a part failed. function: the address of a function that computes a part from the address of
    `arguments`, an array of words, and the number of the part."""
    data = arguments.ctypes.data
    failed = 0
    if count == 1 or atomic_exchange(words, BUSY, 1):  # another thread has the helpers
        for part in range(count):
            failed |= invoke(function, data, part)
        return failed != 0
    words[FUNCTION], words[DATA], words[COUNT] = function, data, count
    atomic_exchange(words, FAILED, 0)
    atomic_exchange(words, NEXT, 0)
    atomic_exchange(words, OPEN, 1)
    claim(words)
    atomic_exchange(words, OPEN, 0)
    while look(words, HELPERS):
        pass
    failed = words[FAILED]
    atomic_exchange(words, BUSY, 0)
    return failed != 0


@compiled(is_called_from_python=True)
def worker_loop(words):
    """Compute parts of offered work until none has been offered for MAX_LOOKS looks; return whether
    this thread helped."""
    idle, helped = 0, False
    while idle < MAX_LOOKS:
        idle += 1
        if look(words, OPEN) and look(words, NEXT) < words[COUNT]:
            atomic_add(words, HELPERS, 1)
            if look(words, OPEN):  # the caller withdraws its work after all helpers have left
                claim(words)
            atomic_add(words, HELPERS, -1)
            idle, helped = 0, True
    return helped


class ParallelKernel:
    """A kernel that threads call for parts of its work, in `phases` phases one after the other.

    kinds: the types of its arguments: "real:2" for an array of two axes, "real" for a number, else
    the name of a type. codes: the argument of a part, a letter each. In the order of the call's
    arguments: w for the array or number as it is; s for the rows of an array from the first to the
    last of the part, S for the same beginning at a multiple of LINE_SAMPLES, o for its entry
    that belongs to the part. Besides: h for the number of the phase, p for that of the part, n for
    the number of parts, f and l for the first row and the one after the last.
    """

    def __init__(self, kernel, kinds, codes, phases=1):
        self.kernel, self.kinds, self.codes, self.phases = kernel, kinds, codes, phases
        pairs = zip(kinds, codes, strict=True)
        self.passed_kinds = [kind for kind, code in pairs if code in ARGUMENT_CODES]
        self.addresses: dict = {}

    def prepare(self, real):
        """Compile the kernel for a type of float; return its address, and that of the function that
        calls it for a part."""
        if real not in self.addresses:
            kinds = tuple(_type(kind, real) for kind in self.kinds)
            self.addresses[real] = address_of(self.kernel, kinds), part_caller(kinds, self.codes)
        return self.addresses[real]

    def __call__(self, words, parts, length, real, arguments):
        """Call the kernel for each part; return whether one failed. words: see `submit`."""
        kernel, caller = self.prepare(real)
        pairs = zip(arguments, self.passed_kinds, strict=True)
        words_of_arguments = [_word(argument, kind, real) for argument, kind in pairs]
        data = np.array([length, parts, kernel, 0, *words_of_arguments], np.int64)
        failed = False
        for phase in range(self.phases):
            data[PHASE] = phase
            failed |= submit(words, caller, data, parts)
        return failed


def _type(kind, real):
    """Return Numba's type of a kernel's argument."""
    name, _, axes = kind.partition(":")
    entry = from_dtype(real) if name == "real" else getattr(types, name)
    return types.Array(entry, int(axes), "C") if axes else entry


def _word(argument, kind, real):
    """Convert an argument to a word: the address of an array object, the bits of a float, or an
    integer."""
    if ":" in kind:
        return id(argument)
    return int(real.type(argument).view(f"i{real.itemsize}")) if kind == "real" else argument
