"""Kernels of a device, their launches, and the arrays of a call."""

# mypy: allow-untyped-defs

import copy
import importlib
import math
import warnings

import numpy as np
from numba import config, cuda

from .. import DIGEST
from ..internals.launches import launch

THREADS = 256
"""The largest number of threads of a block."""
SIMULATED = bool(config.ENABLE_CUDASIM)  # type: ignore[attr-defined]
"""True if Numba simulates a device in this process."""
MAX_BLOCKS = 1 << 20
"""The largest number of blocks of a launch."""
MAX_ENTRYWISE_BLOCKS = 1 << 13
"""The largest number of blocks of a kernel that does little for an entry: more than any device runs
at once. A thread's work before its first entry takes as long as an entry."""


def kernel(*signatures):
    """Decorate a kernel for one or several signatures, and enter it in its module's `_kernels`:
    under its name for the first signature, with a number for further ones."""

    def decorate(function):
        # as for the CPU: cached machine code contains this name, and must not be used by a module
        # with another support
        function.__qualname__ = f"{function.__module__}.{function.__name__}.{DIGEST[:8]}"
        try:
            dispatcher = cuda.jit(cache=True)(function)
        except RuntimeError:  # Numba finds no folder for its cache
            dispatcher = cuda.jit(function)
        kernels = function.__globals__.setdefault("_kernels", {})
        for number, signature in enumerate(signatures, 1):
            name = function.__name__ if number == 1 else f"{function.__name__}_{number}"
            kernels[name] = dispatcher, f"void({signature})"
        return dispatcher

    return decorate


def all_kernels(names):
    """The kernels of a generated module, given its globals, and of the support files that it uses.

    Returns two dicts by name: (kernel, its signature in float64), and the signature with `real` for
    the type of the run's arrays, float64 or float32."""
    kernels: dict = {}
    visited: list = []
    pending = [names]
    while pending:
        names = pending.pop()
        if any(names is namespace for namespace in visited):
            continue
        visited.append(names)
        kernels |= names.get("_kernels", {})
        for value in names.values():
            namespace = getattr(getattr(value, "py_func", value), "__globals__", {})
            if "_support." in namespace.get("__name__", ""):
                pending.append(namespace)
    kernels = dict(sorted(kernels.items()))
    doubles = {
        name: (dispatcher, signature.replace("real", "float64"))
        for name, (dispatcher, signature) in kernels.items()
    }
    return doubles, {name: signature for name, (_, signature) in kernels.items()}


device = cuda.jit(device=True, inline="always")
"""Decorates a device function. It is inlined, since without a device Numba compiles no separate
functions. Each level of nested calls doubles the numbers in Numba's labels, for all kernels of the
process: after some hundred kernels with several levels, the labels are too long for the compiler.
Therefore functions that many kernels call do not call others."""


@device
def position(number, shape):
    """The indices of entry `number` in a stack of matrices of this shape."""
    _, rows, columns = shape
    return number // columns // rows, number // columns % rows, number % columns


def imported(package, part=None):
    """Import a package, or a part of it. None if it is not installed or the device is simulated; a
    package without the part causes a warning."""
    if SIMULATED:
        return None
    try:
        module = importlib.import_module(package)
    except ImportError:
        return None
    try:
        return module if part is None else getattr(module, part)
    except (ImportError, AttributeError) as error:
        message = f"{package} has no {part}, so large matrices are refused: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return None


_cupy = imported("cupy")
_constants: dict = {}


def _start(kernel, blocks, threads, run, arguments):
    """Launch a kernel on the stream of a run. On a device the driver does it: by Numba's launch,
    small calls take two to three times as long."""
    if SIMULATED:
        kernel[blocks, threads, run.stream](*arguments)
    else:
        launch(kernel, run.device, blocks, threads, run.address, arguments)


def power_of_two(number, limit):
    """The smallest power of two that is at least `number`, but at most `limit`."""
    power = 1
    while power < number and power < limit:
        power *= 2
    return power


def require_number(count):
    """Raise ValueError for more entries than kernels can count: indices are computed with 32
    bits."""
    if count >= 1 << 32:
        raise ValueError(
            f"an array of {count} entries is computed at once; kernels for CUDA devices count to "
            "4294967295: compute it in parts, or use the module for the target cpu"
        )


def device_number():
    """The number of the device in use, which becomes the context of this thread; 0 for the
    simulated device."""
    if _cupy is not None:
        runtime = _cupy.cuda.runtime
        runtime.setDevice(number := runtime.getDevice())
        return number
    return getattr(cuda.get_current_device(), "id", 0)


class _Run:
    """One call on a device: its stream, and arrays of one floating-point type.

    With CuPy, arrays are CuPy's and the stream is its current one; else arrays are Numba's.

    address: the stream's handle; device: the number of the device in use; failures: for each check
    an int32 on the device, 1 if it failed; details: check -> further text of its error; function:
    the name of the called function."""

    function = ""

    def __init__(self, dtype, stream, checks=0, address=0):
        self.dtype = dtype
        self.stream = stream
        self.address = address
        self.device = device_number()
        self.details: dict = {}
        self.failures = self.to_device(np.zeros(checks, np.int32), np.int32) if checks else None

    def empty(self, shape, dtype=None):
        """Allocate an array on the device."""
        kind = self.dtype if dtype is None else dtype
        if _cupy is None:
            return cuda.device_array(shape, kind, stream=self.stream)
        return _cupy.empty(shape, kind)

    def to_host(self, array):
        """Copy an array to the host, after waiting for it."""
        if _cupy is not None:
            return array.get()
        copy = array.copy_to_host(stream=self.stream)
        self.stream.synchronize()
        return copy

    def to_device(self, array, dtype):
        """Copy an array of the host to the device."""
        array = np.require(array, dtype, "C")
        return cuda.to_device(array, stream=self.stream) if _cupy is None else _cupy.asarray(array)

    def overwrite(self, array, values):
        """Copy an array of the host to an existing array of the device."""
        if _cupy is not None:
            array.set(values)
            return
        array.copy_to_device(values, stream=self.stream)
        self.stream.synchronize()

    def entry(self, array, index):
        """array[index], as a number of the host if it has no axes."""
        entry = array[index]
        return self.to_host(entry)[()] if _cupy is not None and not entry.shape else entry

    def part(self, array, *index):
        """array[index]. Of an empty array it is a new one: Numba cannot index it, or gives a wrong
        shape."""
        if array.size == 0:
            return self.empty(array.shape[len(index) :], array.dtype)
        return array[index]

    def range(self, array, start, stop):
        """array[start:stop]. If it has no entries it is a new array: Numba may give a wrong
        shape."""
        shape = (stop - start, *array.shape[1:])
        return array[start:stop] if math.prod(shape) else self.empty(shape, array.dtype)

    def constant(self, array, dtype=None):
        """A constant array of the module, copied to the device once in each type."""
        kind = self.dtype if dtype is None else np.dtype(dtype)
        key = id(array), kind, self.device
        if key not in _constants:
            _constants[key] = self.to_device(array, kind)
            self.stream.synchronize()  # later calls may be on other streams
        return _constants[key]

    def in_double(self):
        """A copy of this run whose new arrays are float64."""
        run = copy.copy(self)
        run.dtype = np.dtype(np.float64)
        return run

    def launch(self, kernel, points, *arguments, max_threads=THREADS):
        """Launch a kernel with a thread for each point, or for several of many points, and at most
        `max_threads` threads per block."""
        require_number(points)
        threads = power_of_two(points, max_threads)
        self.start(kernel, min(-(-points // threads), MAX_ENTRYWISE_BLOCKS), threads, *arguments)

    def launch_samples(self, kernel, samples, *arguments, max_threads):
        """Launch a kernel with a thread for each sample, and at most `max_threads` threads per
        block, as many as its tiles in shared memory hold."""
        require_number(samples)
        threads = power_of_two(samples, max_threads)
        self.start(kernel, -(-samples // threads), threads, *arguments)

    def launch_matrices(self, kernel, stack, threads, *arguments):
        """Launch a kernel with a block for each matrix of a stack, unless `threads` is 0."""
        self.start(kernel, stack if threads else 0, power_of_two(threads, THREADS), *arguments)

    def launch_groups(self, kernel, items, lanes, *arguments):
        """Launch a kernel with a group of `lanes` threads of a block, a power of two, for each
        item; `lanes` is its last argument."""
        threads = max(lanes, power_of_two(items * lanes, THREADS))
        self.start(kernel, -(-items * lanes // threads), threads, *arguments, lanes)

    def start(self, kernel, blocks, threads, *arguments):
        """Launch a kernel unless `blocks` is 0. Python floats take the precision of the run;
        NumPy's numbers keep theirs."""
        if blocks > 0:
            real = self.dtype.type
            values = [real(value) if type(value) is float else value for value in arguments]
            _start(kernel, min(blocks, MAX_BLOCKS), threads, self, values)
