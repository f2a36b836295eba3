"""Calls of a kernel for all parts of its work, by the threads that are free."""

# mypy: allow-untyped-defs

import numpy as np
from numba import from_dtype, types

from ..internals.functions import address_of
from ..internals.part_caller import PHASE, part_caller
from .shared_work import submit

ARGUMENT_CODES = "wsSo"
"""The codes of what a call passes; the others stand for numbers of the part."""


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
        given = zip(arguments, self.passed_kinds, strict=True)
        words_of_arguments = [_word(argument, kind, real) for argument, kind in given]
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
