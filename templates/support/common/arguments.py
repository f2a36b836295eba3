"""Conversion of arguments before a kernel is called, and delivery of its results.

Names start with an underscore, which no name of a declaration does: none can hide them.
"""

# mypy: allow-untyped-defs

import math
import re
from typing import NamedTuple

import numpy as np

from .module import BATCH_AXES

_LinAlgError = np.linalg.LinAlgError
_empty = np.empty
_named = tuple.__new__
_ndarray = np.ndarray
_FLOAT32 = np.dtype(np.float32)
_FLOAT64 = np.dtype(np.float64)
_PLAIN = (np.ndarray, np.matrix, np.memmap)
"""Types of arrays that carry no more than numbers, such as a mask or a unit."""
MAX_HEAP_ENTRIES = 16384
"""Results with at most this many entries in total stay in malloc's heap; malloc may return the
memory of larger ones to the system."""


class _Expected(NamedTuple):
    """The arguments and results that a public function expects, and its name in messages.

    shapes: the name and shape of each argument, "cotangent.mean" in a tuple of cotangents.
    requirements: conditions on sizes. results: their paths, as in "out.gradient.A"."""

    function: str
    shapes: tuple
    requirements: tuple
    results: tuple


def _describe(value):
    """Name the type of a value in an error message."""
    if value is None or isinstance(value, str | bytes):
        return repr(value)
    kind = type(value).__name__
    return f"{kind} of dtype {value.dtype}" if isinstance(value, np.ndarray | np.generic) else kind


def _advice_if_not_plain(value):
    """Advice for a value whose mask or unit a conversion to numbers would lose; "" for others."""
    if type(value) in _PLAIN:
        return ""
    if isinstance(value, list | tuple):
        return next(filter(None, map(_advice_if_not_plain, value)), "")
    if not callable(getattr(value, "mask", callable)):  # pandas has a method of this name
        return "fill the masked entries, as with np.ma.filled, or leave them out"
    has_unit = any(not callable(getattr(value, name, callable)) for name in ("unit", "units"))
    if has_unit or isinstance(value, np.ndarray):
        return "pass the numbers alone, as of np.asarray"
    return ""


def _require_plain(function, name, value):
    advice = _advice_if_not_plain(value)
    if advice:
        raise TypeError(
            f"{function}: argument {name} is {_describe(value)}, which says more than its "
            f"numbers; {advice}"
        )


def _number_array(function, name, value):
    """Convert what NumPy takes, or what has only DLPack's methods, to an array of real numbers in
    the memory of the CPU. Raises TypeError or ValueError."""
    if type(value) is _ndarray and value.dtype.kind == "f":
        return value
    _require_plain(function, name, value)
    try:
        by_dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
        array = np.from_dlpack(value) if by_dlpack else np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{function}: argument {name} is no array: {error}") from error
    except (BufferError, RuntimeError, TypeError) as error:  # on a device, or with a gradient
        raise TypeError(
            f"{function}: argument {name} is {_describe(value)}, which NumPy cannot read: {error}"
        ) from error
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{function}: argument {name} is {_describe(value)}; expected real numbers")
    return array


def _coerce(expected, values):
    """Return the batch axes, and the arguments as kernels take them: C-contiguous arrays of one
    float type with the batch axes merged into one, numbers for rank 0.

    The type is float32 if all arrays are float32 (all numbers, where there are no arrays), else
    float64. Raises TypeError for an argument that holds no real numbers, ValueError for a wrong
    rank or batch axes that do not broadcast."""
    function, shapes = expected.function, expected.shapes
    real = getattr(values[0], "dtype", None)
    if (real is _FLOAT64 or real is _FLOAT32) and all(
        type(value) is _ndarray
        and value.dtype is real
        and value.flags.carray
        and 0 < value.ndim == len(shape)
        for value, (_, shape) in zip(values, shapes, strict=True)
    ):
        pairs = zip(values, shapes, strict=True)
        lengths = {len(value) for value, (_, shape) in pairs if shape[0] == BATCH_AXES}
        if len(lengths) < 2:
            return tuple(lengths), values
    arrays = [
        _number_array(function, name, value)
        for (name, _), value in zip(shapes, values, strict=True)
    ]
    axes = _batch_axes(expected, [array.shape for array in arrays])
    dtypes = {array.dtype for array in arrays if array.ndim > 0} or {a.dtype for a in arrays}
    real = _FLOAT32 if dtypes == {_FLOAT32} else _FLOAT64
    samples = math.prod(axes)
    merged = [
        _with_one_batch_axis(array, axes, samples, len(shape) - 1)
        if shape[:1] == (BATCH_AXES,)
        else array
        for array, (_, shape) in zip(arrays, shapes, strict=True)
    ]
    return axes, [_kernel_argument(array, real) for array in merged]


def _kernel_argument(array, real):
    """Convert an array to one that kernels take, or to a number for rank 0."""
    if array.ndim == 0:
        return real.type(array)
    if array.dtype is real and array.flags.carray:  # np.require takes several times as long
        return array
    return np.require(array, real, ["C", "A", "W", "E"])


def _batch_axes(expected, actual_shapes):
    """Broadcast the batch axes of all arguments. Raises ValueError if they do not broadcast, or for
    a wrong rank."""
    function, shapes = expected.function, expected.shapes
    axes: tuple = ()
    for (name, shape), lengths in zip(shapes, actual_shapes, strict=True):
        has_batch = shape[:1] == (BATCH_AXES,)
        count = len(lengths) - len(shape) + has_batch
        if count < 0 or (count > 0 and not has_batch):
            _raise_shape_error(expected, list(map(_of_shape, actual_shapes)))
        argument_axes = lengths[:count]
        if not axes or argument_axes in ((), axes):
            axes = axes or argument_axes
            continue
        try:
            axes = np.broadcast_shapes(axes, argument_axes)
        except ValueError as error:
            raise ValueError(
                f"{function}: argument {name} has the batch axes {_shape_text(argument_axes)}; "
                f"expected axes that broadcast with {_shape_text(axes)}, those of the arguments "
                "before it"
            ) from error
    return axes


def _of_shape(shape):
    """Make an array of a shape, without memory."""
    return np.broadcast_to(0.0, shape)


def _with_one_batch_axis(array, axes, samples, rank):
    """Merge the batch axes of an argument, which broadcast to `axes`, into one of `samples`: a view
    if it is contiguous and has them all. rank: the number of axes of a sample."""
    core = array.shape[array.ndim - rank :]
    if array.size != samples * math.prod(core):
        array = np.broadcast_to(array, axes + core)
    return array.reshape((samples, *core))


def _core(shape, lengths):
    """Strip the batch axes from an expected shape and from the lengths of an array's axes."""
    if shape[:1] != (BATCH_AXES,):
        return shape, lengths
    return shape[1:], lengths[max(0, len(lengths) - len(shape) + 1) :]


def _cotangents(expected, inputs, cotangent):
    """Split the cotangents of several outputs, with zeros for None. Raises TypeError for what is no
    tuple, ValueError for a tuple with other parts."""
    function, shapes = expected.function, expected.shapes
    parts = shapes[len(inputs) :]
    names = [name.partition(".")[2] for name, _ in parts]
    if not isinstance(cotangent, tuple | list):
        raise TypeError(
            f"{function}: argument cotangent is {_describe(cotangent)}; expected a tuple of the "
            f"cotangents of {', '.join(names)}"
        )
    fields = getattr(cotangent, "_fields", names)
    if len(cotangent) != len(names) or list(fields) != names:
        called = f" called {', '.join(fields)}" if fields is not names else ""
        raise ValueError(
            f"{function}: argument cotangent has {len(cotangent)} parts{called}; expected one for "
            f"each output: {', '.join(names)}"
        )
    if all(part is not None for part in cotangent):
        return cotangent
    sizes: dict = {}
    for (_, shape), value in zip(shapes, inputs, strict=False):
        core, lengths = _core(shape, getattr(value, "shape", None) or np.shape(value))
        if len(core) != len(lengths):
            _raise_shape_error(expected._replace(shapes=shapes[: len(inputs)]), inputs)
        sizes |= dict(zip(core, lengths, strict=True))
    kinds = {str(value.dtype) for value in inputs if getattr(value, "shape", ())}
    real = _FLOAT32 if {kind.rpartition(".")[2] for kind in kinds} == {"float32"} else _FLOAT64
    return [
        np.zeros([eval(text, {}, sizes) for text in _core(shape, ())[0]], real)
        if part is None
        else part
        for (_, shape), part in zip(parts, cotangent, strict=True)
    ]


def _real(number):
    """Return the dtype of the results where all arguments are numbers like `number`."""
    return _FLOAT32 if type(number) is np.float32 else _FLOAT64


def _shape_text(shape):
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _stack_hint(name, shape, expected):
    """Advice for an argument that has one axis more than expected; "" for others."""
    if len(shape) != len(expected) + 1 or BATCH_AXES in expected:
        return ""
    column = f"; a column is given as the vector {name}[:, 0]" if shape[1:] == (1,) else ""
    return (
        f"{column}; a stack of samples is taken where the function is declared with batch=[{name}]"
    )


def _raise_shape_error(expected, values):
    """Raise ValueError for the first argument whose shape is not the expected one, or for the first
    unmet requirement. Earlier axes give the sizes that later ones are compared with."""
    function, shapes, requirements, _ = expected
    pairs = zip(shapes, values, strict=True)
    arrays = [_number_array(function, name, value) for (name, _), value in pairs]
    sizes: dict = {}
    for (name, shape), array in zip(shapes, arrays, strict=True):
        core, lengths = _core(shape, array.shape)
        if len(lengths) == len(core):
            for text, length in zip(core, lengths, strict=True):
                if text.isidentifier():
                    sizes.setdefault(text, length)
        names = dict.fromkeys(re.findall(r"[^\W\d]\w*", " ".join(core)))
        names.pop("min", None)
        known = {size: sizes[size] for size in names if size in sizes}
        expected_lengths = lengths
        if len(known) == len(names):
            expected_lengths = tuple(eval(text, {}, known) for text in core)
        if len(lengths) != len(core) or lengths != expected_lengths:
            known_text = ", ".join(f"{size} = {length}" for size, length in known.items())
            raise ValueError(
                f"{function}: argument {name} has shape {_shape_text(array.shape)}; "
                f"expected {_shape_text(shape)}{' with ' + known_text if known else ''}"
                f"{_stack_hint(name, array.shape, shape)}"
            )
    for requirement in requirements:
        if not eval(requirement, {}, sizes):
            lengths_text = ", ".join(
                f"{size} = {length}"
                for size, length in sizes.items()
                if re.search(rf"\b{size}\b", requirement)
            )
            raise ValueError(f"{function}: {lengths_text}; it needs {requirement}")
    shapes_text = ", ".join(
        f"{name} has shape {_shape_text(array.shape)} for {_shape_text(shape)}"
        for (name, shape), array in zip(shapes, arrays, strict=True)
    )
    raise ValueError(f"{function}: no sizes fit the arguments' shapes: {shapes_text}")


def _flat(out):
    """List the arrays of nested tuples, depth first."""
    if isinstance(out, tuple | list):
        return [array for part in out for array in _flat(part)]
    return [out]


def _out_arrays(expected, out):
    """List the arrays of `out`. Raises ValueError unless there is one for each result."""
    function, names = expected.function, expected.results
    arrays = _flat(out)
    if len(arrays) != len(names):
        raise ValueError(
            f"{function}: out has {len(arrays)} arrays; expected {len(names)}: {', '.join(names)}"
        )
    return arrays


def _destinations(expected, out, shapes, real, arguments):
    """List an array for each result: that of `out` if the kernel can write to it, else a new
    one."""
    if out is None:
        entries = sum(math.prod(shape) for shape in shapes)
        # after one allocation of all entries, malloc keeps free memory for them in one block
        if len(shapes) > 1 and entries > MAX_HEAP_ENTRIES:
            _empty(entries, real)
        return [_empty(shape, real) for shape in shapes]
    function, names = expected.function, expected.results
    arrays = _out_arrays(expected, out)
    results: list = []
    for name, array, shape in zip(names, arrays, shapes, strict=True):
        _require_destination(function, name, array, shape, real)
        for other_name, other in zip(names, arrays[: len(results)], strict=False):
            if np.shares_memory(array, other):
                raise ValueError(f"{function}: {other_name} and {name} share memory")
        is_shared = any(np.may_share_memory(array, argument) for argument in arguments)
        is_writable = type(array) is np.ndarray and array.dtype == real and array.flags.carray
        results.append(array if is_writable and not is_shared else np.empty(shape, real))
    return results


def _require_destination(function, name, array, shape, real):
    """Raise TypeError or ValueError unless `array` can hold results of this shape and type."""
    _require_plain(function, name, array)
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{function}: {name} is {_describe(array)}; expected an array")
    if array.shape != shape:
        raise ValueError(
            f"{function}: {name} has shape {_shape_text(array.shape)}; "
            f"expected {_shape_text(shape)}"
        )
    if not np.can_cast(real, array.dtype, "same_kind"):
        raise TypeError(f"{function}: {name} has dtype {array.dtype}; expected {real}")
    if not array.flags.writeable:
        raise ValueError(f"{function}: {name} is read-only")


def _deliver(out, results):
    """Copy the results into the arrays of `out` and return these; if `out` is None, return the
    results, as numbers for rank 0."""
    if out is None:
        return [result if result.ndim else result[()] for result in results]
    arrays = _flat(out)
    for array, result in zip(arrays, results, strict=True):
        if array is not result:
            array[...] = result
    return arrays
