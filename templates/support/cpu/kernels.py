"""Kernels of a generated module, and calls of them by several threads, which compute parts of the
work."""

# mypy: allow-untyped-defs

import numpy as np
from numba import NumbaError, config, from_dtype, njit, types

from ..common.module import MAX_WRITING_THREADS, MIN_OPS_PER_THREAD
from ..common.module import Module as _Module
from ..internals.functions import address_of, compiled
from ..internals.memory import part_caller
from .thread_pool import _THREAD_POOL, submit

_CONVERSION_ERRORS = (AttributeError, IndexError, MemoryError, NumbaError, TypeError, ValueError)
"""Errors of a call whose arguments must be converted first. Axes that are taken for others can make
results too large for the memory."""
_THREADS = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
_BLOCK_BYTES = 1 << 18
"""Bytes of a block of samples whose temporary arrays should stay in the cache; larger arrays that
every block reads as a whole make blocks larger."""
_BLAS_BLOCK_BYTES = 80_000
"""Bytes of a block of samples that products of matrices read several times."""


class Module(_Module):
    """A generated module."""

    has_operators = True

    def kernel(self, **options):
        """Decorate a kernel; it calls `check_` + its name first. options: see `compiled`."""
        return compiled(is_called_from_python=True, **options)

    def share(self, **options):
        """Decorate the body of a kernel that computes share `part` of `parts` of the rows; the data
        file has the kernel itself."""
        return self._named_after("share", is_called_from_python=True, **options)

    def part(self, **options):
        """Decorate the body of a kernel that adds a part of the samples to its results; the data
        file has the kernel itself."""
        return self._named_after("part", **options)

    def _named_after(self, ending, **options):
        def decorate(body):
            body.__name__ = f"{body.__name__}_{ending}"
            self.names[body.__name__] = compiled(**options)(body)
            return self.names[body.__name__]

        return decorate

    # Decorators of the second file

    def check(self, function):
        """Decorate the function that checks the arguments of a kernel."""
        # CPython passes more than 30 arguments as one tuple, which Numba cannot inline
        is_inlined = function.__code__.co_argcount <= 30
        return self._in_module(function, njit(inline="always") if is_inlined else njit)

    def whole_kernel(self, function):
        """Decorate a kernel that calls its share or part for all of the work."""
        return self._in_module(function, self.compiled(is_called_from_python=True))

    def compiled(self, **options):
        """Decorate a function that Numba caches as one of the module's first file."""

        def decorate(function):
            file = self.names["__file__"]
            function.__code__ = function.__code__.replace(co_filename=file)
            return compiled(**options)(function)

        return decorate

    def _in_module(self, function, decorate):
        """Make a function of the module, without the underscore before its name."""
        name = function.__name__ = function.__name__.removeprefix("_")
        self.names[name] = decorate(function)
        return self.names[name]


class SharedKernel:
    """A kernel whose work threads share.

    kernel: does all of the work; part: a part of it, by rows or by samples. If parts sum over
    samples, each has arrays of its own for the sums, and computes its samples block by block.

    kinds: the types of the arguments of `part`: "real:2" for an array of two axes, "real" for a
    number, else the name of a type. codes: a letter for each of them. In the order of the arrays
    and numbers of the call: w for one as it is; a for an array of which `part` takes its samples; s
    for the rows of an array from the first to the last of the part, S for the same beginning at a
    multiple of LINE_SAMPLES; o for the sum of the part. Then: p for the number of the part, n for
    the number of parts; f and l for its first sample and the one after the last, b for the most
    samples of a block.

    sliced: the place of an array whose first axis counts the samples; None if parts are by rows.
    is_blas_bound: whether BLAS does most of the work; is_gram_bound: whether each part has one
    block, for which BLAS computes Gram matrices.
    """

    def __init__(self, kernel, part, kinds, codes, is_blas_bound=False, is_gram_bound=False):
        self.kernel, self.part, self.kinds, self.codes = kernel, part, kinds, codes
        self.is_blas_bound, self.is_gram_bound = is_blas_bound, is_gram_bound
        self.by_rows, self.has_sums = "p" in codes, "o" in codes
        self.sliced = next((place for place, code in enumerate(codes) if code in "asS"), None)
        self.addresses: dict = {}

    def __call__(self, arrays, ops, entries=0, min_samples=1):
        """Compute the results among the arrays. ops: estimated operations. entries: memory of a
        sample, in numbers, if blocks of samples should fit in the cache; min_samples: fewest in a
        block."""
        threads = min(_THREADS, 1 + ops // MIN_OPS_PER_THREAD)
        length = 0 if self.by_rows else len(arrays[self.sliced])
        step = self.block_length(arrays, entries, min_samples) if entries else length
        if self.by_rows:  # more threads write no faster, and each allocates temporary arrays
            parts = threads = min(threads, MAX_WRITING_THREADS)
        elif self.has_sums:
            parts = threads = max(1, min(threads, length // step))
            step = length if self.is_gram_bound else step
        else:
            threads = max(1, min(threads, length))
            parts = max(1, min(length, threads * -(-length // (max(1, step) * threads))))
        if parts == 1 and step >= length:
            self.run(arrays)
            return
        real, pairs = arrays[-1].dtype, [*zip(arrays, self.codes, strict=False)]
        passed = [np.empty((parts, *a.shape), real) if code == "o" else a for a, code in pairs]
        numbers = length, parts, step
        if _THREAD_POOL.submit(self.compute, threads, numbers, real, passed):
            self.run(arrays)  # raises what the part raised
            return
        for (array, code), partial_sums in zip(pairs, passed, strict=True):
            if code == "o":
                np.add.reduce(partial_sums, axis=0, out=array)

    def run(self, arrays):
        """Do all of the work in one thread."""
        run = _THREAD_POOL.run_by_one_thread if self.is_gram_bound else _THREAD_POOL.run
        run(self.kernel, *arrays)

    def block_length(self, arrays, entries, min_samples):
        """Count the samples of a block that fits in the cache."""
        pairs = zip(arrays, self.codes, strict=False)
        whole = sum(a.nbytes for a, code in pairs if code == "w" and isinstance(a, np.ndarray))
        size = max(_BLOCK_BYTES << ("S" in self.codes), 4 * whole)
        if self.is_blas_bound:
            size = max(_BLAS_BLOCK_BYTES, whole)
        return max(min_samples, size // (arrays[-1].itemsize * entries))

    def prepare(self, real):
        """Compile the kernel of a part for a type of float; return its address, and that of the
        function that calls it."""
        if real not in self.addresses:
            kinds = tuple(_type(kind, real) for kind in self.kinds)
            self.addresses[real] = address_of(self.part, kinds), part_caller(kinds, self.codes)
        return self.addresses[real]

    def compute(self, words, numbers, real, arguments):
        """Compute all parts; return whether one failed. words: see `submit`; numbers: the length of
        the sliced axis, the number of parts, the most samples of a block."""
        kernel, caller = self.prepare(real)
        pairs = zip(arguments, self.kinds, strict=False)
        passed = [_word(argument, kind, real) for argument, kind in pairs]
        data = np.array([kernel, *numbers, *passed], np.int64)
        return submit(words, caller, data, numbers[1])


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


@compiled(linked=True)
def border(length, part, parts):
    """Return where a part of a length starts."""
    # the mask shows LLVM that indices are not negative; it does not vectorise a loop whose indices
    # may count from the end of the axis
    return (length * part // parts) & 0x7FFFFFFFFFFF


@compiled()
def add_onto(total, addend):
    """total += addend, for arrays of one axis."""
    for i in range(total.size):
        total[i] += addend[i]


def _nearest(structure, array):
    """Copy an array as the nearest one of a structure, as kernels read it."""
    if structure in ("symmetric", "spd"):
        return array / 2 + array.mT / 2  # the sum of large entries could overflow
    lower = np.tril(array) if structure in ("lower", "diagonal") else array.copy()
    return np.triu(lower) if structure in ("upper", "diagonal") else lower
