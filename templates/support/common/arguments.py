"""What the public functions of a generated module do before and after their kernel.

Names start with an underscore so that no input's name hides one.
"""

# mypy: allow-untyped-defs

import math
import re

import numpy as np
from numba import NumbaError

from .limits import _LARGE
from .plain_arrays import _says_more

_ndarray = np.ndarray
_empty = np.empty
_FLOAT32 = np.dtype(np.float32)
_FLOAT64 = np.dtype(np.float64)
_UNREADY = (AttributeError, IndexError, NumbaError, TypeError, ValueError)
"""What a call raises whose arguments a kernel does not take as they are."""


def _described(value):
    if value is None or isinstance(value, str | bytes):
        return repr(value)
    kind = type(value).__name__
    return f"{kind} of dtype {value.dtype}" if isinstance(value, np.ndarray | np.generic) else kind


def _require_plain(function, name, value):
    advice = _says_more(value)
    if advice:
        raise TypeError(
            f"{function}: argument {name} is {_described(value)}, which says more than its "
            f"numbers; {advice}"
        )


def _number_array(function, name, value):
    """`value` as an array of real numbers: what NumPy takes, and what has DLPack's methods alone,
    in the memory of the CPU."""
    _require_plain(function, name, value)
    try:
        by_dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
        array = np.from_dlpack(value) if by_dlpack else np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{function}: argument {name} is no array: {error}") from error
    except (BufferError, RuntimeError, TypeError) as error:  # on a device, or with a gradient
        raise TypeError(
            f"{function}: argument {name} is {_described(value)}, which NumPy cannot read: {error}"
        ) from error
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{function}: argument {name} is {_described(value)}; expected real numbers"
        )
    return array


def _coerced(function, expected, values):
    """The arguments as the kernels take them: C-contiguous arrays of one float type (float32
    if all arrays are, or where there are none all numbers), numbers for rank 0. Raises TypeError
    for what is no real array and ValueError for a wrong rank."""
    shapes, _, _ = expected
    real = getattr(values[0], "dtype", None)
    if (real is _FLOAT64 or real is _FLOAT32) and all(
        type(value) is _ndarray
        and value.dtype is real
        and value.flags.carray
        and 0 < value.ndim == len(shape)
        for value, (_, shape) in zip(values, shapes, strict=True)
    ):
        return values
    arrays = [
        _number_array(function, name, value)
        for (name, _), value in zip(shapes, values, strict=True)
    ]
    if any(array.ndim != len(shape) for array, (_, shape) in zip(arrays, shapes, strict=True)):
        _refuse(function, expected, arrays)
    kinds = {array.dtype for array in arrays if array.ndim > 0} or {a.dtype for a in arrays}
    real = _FLOAT32 if kinds == {_FLOAT32} else _FLOAT64
    return [
        np.require(array, real, ["C", "A", "W", "E"]) if array.ndim > 0 else real.type(array)
        for array in arrays
    ]


def _real(number):
    """The type of the results where all arguments are numbers, from one of them."""
    return _FLOAT32 if type(number) is np.float32 else _FLOAT64


def _shape_text(shape):
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _stack_hint(name, found, expected):
    """What to do where an argument looks like a stack of those expected."""
    if len(found) != len(expected) + 1 or "batch" in expected:
        return ""
    column = f"; a column is given as the vector {name}[:, 0]" if found[1:] == (1,) else ""
    return (
        f"{column}; a stack of samples is taken where the function is declared with batch=[{name}]"
    )


def _refuse(function, expected, values):
    """Raise ValueError for the first argument that has another shape than expected; sizes are
    known from the axes before."""
    shapes, requirements, _ = expected
    arrays = [np.asarray(value) for value in values]
    sizes: dict = {}
    for (name, shape), array in zip(shapes, arrays, strict=True):
        if array.ndim == len(shape):
            for text, length in zip(shape, array.shape, strict=True):
                if text.isidentifier():
                    sizes.setdefault(text, length)
        names = dict.fromkeys(re.findall(r"[^\W\d]\w*", " ".join(shape)))
        names.pop("min", None)
        known = {size: sizes[size] for size in names if size in sizes}
        lengths = array.shape
        if len(known) == len(names):
            lengths = tuple(eval(text, {}, known) for text in shape)
        if array.ndim != len(shape) or array.shape != lengths:
            values = ", ".join(f"{size} = {length}" for size, length in known.items())
            raise ValueError(
                f"{function}: argument {name} has shape {_shape_text(array.shape)}; "
                f"expected {_shape_text(shape)}{' with ' + values if values else ''}"
                f"{_stack_hint(name, array.shape, shape)}"
            )
    for requirement in requirements:
        if not eval(requirement, {}, sizes):
            given = ", ".join(
                f"{size} = {length}"
                for size, length in sizes.items()
                if re.search(rf"\b{size}\b", requirement)
            )
            raise ValueError(f"{function}: {given}; it needs {requirement}")
    given = ", ".join(
        f"{name} has shape {_shape_text(array.shape)} for {_shape_text(shape)}"
        for (name, shape), array in zip(shapes, arrays, strict=True)
    )
    raise ValueError(f"{function}: no sizes fit the arguments' shapes: {given}")


def _flat(out):
    """The arrays of nested tuples, in order."""
    if isinstance(out, tuple | list):
        return [array for part in out for array in _flat(part)]
    return [out]


def _given_arrays(function, names, out):
    """The arrays of `out`. Raises ValueError where there is not one for each result."""
    arrays = _flat(out)
    if len(arrays) != len(names):
        raise ValueError(
            f"{function}: out has {len(arrays)} arrays; expected {len(names)}: {', '.join(names)}"
        )
    return arrays


def _destinations(function, expected, out, shapes, real, arguments):
    """For each result the array of `out` that the kernel can write to, else a new one."""
    if out is None:
        entries = sum(math.prod(shape) for shape in shapes)
        if len(shapes) > 1 and entries > _LARGE:  # malloc keeps what was free in one block
            _empty(entries, real)
        return [_empty(shape, real) for shape in shapes]
    *_, names = expected
    arrays = _given_arrays(function, names, out)
    results: list = []
    for name, array, shape in zip(names, arrays, shapes, strict=True):
        _require_destination(function, name, array, shape, real)
        for other_name, other in zip(names, arrays[: len(results)], strict=False):
            if np.shares_memory(array, other):
                raise ValueError(f"{function}: {other_name} and {name} share memory")
        shared = any(np.may_share_memory(array, argument) for argument in arguments)
        direct = type(array) is np.ndarray and array.dtype == real and array.flags.carray
        results.append(array if direct and not shared else np.empty(shape, real))
    return results


def _require_destination(function, name, array, shape, real):
    """Raise unless results of this shape and type can be put into `array`."""
    _require_plain(function, name, array)
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{function}: {name} is {_described(array)}; expected an array")
    if array.shape != shape:
        raise ValueError(
            f"{function}: {name} has shape {_shape_text(array.shape)}; "
            f"expected {_shape_text(shape)}"
        )
    if not np.can_cast(real, array.dtype, "same_kind"):
        raise TypeError(f"{function}: {name} has dtype {array.dtype}; expected {real}")
    if not array.flags.writeable:
        raise ValueError(f"{function}: {name} is read-only")


def _delivered(out, results):
    """The arrays of `out`, with the results in them; the results where there is none."""
    if out is None:
        return results
    arrays = _flat(out)
    for array, result in zip(arrays, results, strict=True):
        if array is not result:
            array[...] = result
    return arrays
