"""What every generated module for CUDA devices stands on: kernels, and the run of a call."""

# mypy: allow-untyped-defs

import copy
import importlib
import warnings

import numpy as np
from numba import config, cuda

from .. import DIGEST
from ..internals.launches import launch

THREADS = 256
"""The most threads of a block."""
SIMULATED = bool(config.ENABLE_CUDASIM)  # type: ignore[attr-defined]
"""Whether Numba simulates a device in this process."""
MOST_BLOCKS = 1 << 20
"""The most blocks of a launch."""
ENOUGH_BLOCKS = 1 << 13
"""More blocks than any device runs at once. Where threads do little for an entry, no more are
started than these, since what each does before its first one takes as long."""


def kernel(*signatures):
    """A kernel of the device for arguments of one or several signatures, entered in its module's
    own table of kernels by its name, and from the second signature on by that and a number."""

    def decorate(function):
        # as for the CPU: cached code remembers its module's name
        function.__qualname__ = f"{function.__module__}.{function.__name__}.{DIGEST[:8]}"
        try:
            made = cuda.jit(cache=True)(function)
        except RuntimeError:
            made = cuda.jit(function)
        own = function.__globals__.setdefault("_kernels", {})
        for number, signature in enumerate(signatures, 1):
            name = function.__name__ if number == 1 else f"{function.__name__}_{number}"
            own[name] = made, f"void({signature})"
        return made

    return decorate


def all_kernels(names):
    """Of the global names of a generated module, and of the support files that it uses: name -> a
    kernel and Numba's signature of it in float64; name -> the signature, with `real` for what is
    float64 or float32, as the arrays of a run are."""
    found: dict = {}
    seen: list = []
    waiting = [names]
    while waiting:
        names = waiting.pop()
        if any(names is each for each in seen):
            continue
        seen.append(names)
        found |= names.get("_kernels", {})
        for value in names.values():
            inner = getattr(getattr(value, "py_func", value), "__globals__", {})
            if "_support." in inner.get("__name__", ""):
                waiting.append(inner)
    found = dict(sorted(found.items()))
    doubles = {
        name: (made, text.replace("real", "float64")) for name, (made, text) in found.items()
    }
    return doubles, {name: text for name, (_, text) in found.items()}


device = cuda.jit(device=True, inline="always")
"""A function of the device. It becomes part of the kernels that call it, since without a device
Numba compiles no functions apart. Each call within a call doubles the numbers of Numba's labels,
for all kernels of the process: after some hundred kernels with several levels their names are too
long for the compiler. So functions that many kernels need call no others."""


@device
def position(number, shape):
    """The indices of entry `number` of a stack of matrices of this shape."""
    _, rows, columns = shape
    return number // columns // rows, number // columns % rows, number % columns


def imported(package, part=None):
    """A package, or a part of it; None where it is not installed, or kernels only simulate a
    device. Where the package lacks the part there is a warning."""
    if SIMULATED:
        return None
    try:
        found = importlib.import_module(package)
    except ImportError:
        return None
    try:
        return found if part is None else getattr(found, part)
    except (ImportError, AttributeError) as error:
        message = f"{package} has no {part}, so large matrices are refused: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return None


_cupy = imported("cupy")
_constants: dict = {}


def _start(kernel, blocks, threads, run, arguments):
    """Start a kernel on the stream of a run."""
    if SIMULATED:
        kernel[blocks, threads, run.stream](*arguments)
    else:
        launch(kernel, run.device, blocks, threads, run.address, arguments)


def power_of_two(number, most):
    """The least power of two that is not less than `number`, but no more than `most`."""
    power = 1
    while power < number and power < most:
        power *= 2
    return power


def require_number(count):
    """Raise ValueError for more entries than kernels count."""
    if count >= 1 << 32:
        raise ValueError(
            f"an array of {count} entries is computed at once; kernels for CUDA devices count to "
            "4294967295: compute it in parts, or use the module for the target cpu"
        )


def device_number():
    """The number of the device in use, whose context is that of this thread from here on; the
    simulated one has none."""
    if _cupy is not None:
        runtime = _cupy.cuda.runtime
        runtime.setDevice(number := runtime.getDevice())
        return number
    return getattr(cuda.get_current_device(), "id", 0)


class _Run:
    """The work of a call: its stream, and the type of its arrays.

    Its arrays are CuPy's where there is CuPy, on whose current stream it is, else Numba's.

    address: where the stream is; device: the number of the device in use; failures: for each check
    of the call an int32 on the device, 1 where it failed; told: what is said besides of a check
    that failed; function: whose call it is.
    """

    function = ""

    def __init__(self, dtype, stream, checks=0, address=0):
        self.dtype = dtype
        self.stream = stream
        self.address = address
        self.device = device_number()
        self.told: dict = {}
        self.failures = self.put(np.zeros(checks, np.int32), np.int32) if checks else None

    def empty(self, shape, dtype=None):
        """An array on the device, its entries undefined."""
        kind = self.dtype if dtype is None else dtype
        if _cupy is None:
            return cuda.device_array(shape, kind, stream=self.stream)
        return _cupy.empty(shape, kind)

    def fetched(self, array):
        """An array of the device as one of the host, which waits for it."""
        if _cupy is not None:
            return array.get()
        copy = array.copy_to_host(stream=self.stream)
        self.stream.synchronize()
        return copy

    def put(self, array, dtype):
        """A copy on the device of an array of the host."""
        given = np.require(array, dtype, "C")
        return cuda.to_device(given, stream=self.stream) if _cupy is None else _cupy.asarray(given)

    def overwrite(self, array, values):
        """Copy an array of the host to one of the device."""
        if _cupy is not None:
            array.set(values)
            return
        array.copy_to_device(values, stream=self.stream)
        self.stream.synchronize()

    def entry(self, array, index):
        """array[index], as a number of the host where it has no axes."""
        found = array[index]
        return self.fetched(found)[()] if _cupy is not None and not found.shape else found

    def part(self, array, *index):
        """array[index]; an array without entries has parts of its own, as Numba refuses to cut it
        or gives them a wrong shape."""
        if array.size == 0:
            return self.empty(array.shape[len(index) :], array.dtype)
        return array[index]

    def constant(self, array, dtype=None):
        """A constant of the module on the device, in the precision of the run."""
        kind = self.dtype if dtype is None else np.dtype(dtype)
        key = id(array), kind, self.device
        if key not in _constants:
            _constants[key] = self.put(array, kind)
            self.stream.synchronize()  # later calls may be on other streams
        return _constants[key]

    def in_double(self):
        """The same run for arrays of double precision."""
        other = copy.copy(self)
        other.dtype = np.dtype(np.float64)
        return other

    def each(self, kernel, points, *arguments, most=THREADS):
        """Start a kernel with a thread for each of its points, or for some of many, at most `most`
        threads a block."""
        require_number(points)
        threads = power_of_two(points, most)
        self.start(kernel, min(-(-points // threads), ENOUGH_BLOCKS), threads, *arguments)

    def each_sample(self, kernel, samples, *arguments, most):
        """Start a kernel with a thread for each of its samples, at most `most` threads a block,
        which copy them through shared memory."""
        require_number(samples)
        threads = power_of_two(samples, most)
        self.start(kernel, -(-samples // threads), threads, *arguments)

    def each_matrix(self, kernel, stack, threads, *arguments):
        """Start a kernel with a block for each matrix of a stack; none where there are no
        threads."""
        self.start(kernel, stack if threads else 0, power_of_two(threads, THREADS), *arguments)

    def by_groups(self, kernel, items, lanes, *arguments):
        """Start a kernel with a group of `lanes` threads of a block, a power of two, for each item;
        their number is its last argument."""
        threads = max(lanes, power_of_two(items * lanes, THREADS))
        self.start(kernel, -(-items * lanes // threads), threads, *arguments, lanes)

    def start(self, kernel, blocks, threads, *arguments):
        """Start a kernel; none where there are no blocks. Numbers of Python take the precision of
        the run; those of NumPy keep theirs."""
        if blocks > 0:
            given = [self.dtype.type(each) if type(each) is float else each for each in arguments]
            _start(kernel, min(blocks, MOST_BLOCKS), threads, self, given)
