"""Generated modules with `batch=` for dask's arrays: one call for each chunk of samples."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from derivatrix.runtime.adapters.arguments import in_order
from derivatrix.runtime.adapters.packages import require_package
from derivatrix.runtime.adapters.sizes import argument_axes, batch_axes, float_type, sizes_of
from derivatrix.runtime.errors import ShapeError, UnsupportedError
from derivatrix.runtime.interface import ModuleInterface, interface_of
from derivatrix.templates.support.common.module import BATCH_AXES


def map_samples(function: Callable[..., Any], /, *arrays: Any, **named: Any) -> Any:
    """Map a function of a generated module with `batch=`, such as `module.vjp`, over samples.

    arrays, named: the function's arguments, dask arrays or convertible to one. Those with samples
    may have chunks along their batch axes, all others are a single chunk. Structured inputs are
    replaced by their projection on the structure. The result is that of the function, with lazy
    dask arrays in place of NumPy's. They have the samples' chunks; cotangents of inputs that the
    samples share are one chunk, a sum over all chunks in a tree.

    Each task carries the module, so workers need only derivatrix. Raises UnsupportedError for
    another function, numbers that are not real, and chunks along other axes, ShapeError for shapes
    that disagree or are unknown."""
    require_package("dask", "2025.9")
    call = _Call(function)
    arguments = call.arguments(call.in_order(arrays, named))
    tuples = call.result_tuples(arguments)
    results = call.interface.all_results(call.kind)
    return call.packed([call.result(tuples, i, *result) for i, result in enumerate(results)])


class _Call:
    """A call of one function, with the sizes and the float type of its arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.dask = importlib.import_module("dask.array")
        self.module, self.kind = _module_and_kind(function)
        self.interface = interface_of(self.module)
        self.name = f"{self.interface.name}.{self.kind}"
        if not self.interface.batched:
            raise UnsupportedError(
                f"{self.name}: no input has a batch axis; declare which have samples, as in "
                f"dx.function({self.interface.name!r}, ..., batch=[...])"
            )
        self.sizes: dict[str, int] = {}
        self.samples: tuple[str, ...] = ()
        """The labels of the batch axes in `blockwise`."""
        self.dtype = np.dtype(np.float64)

    def in_order(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        """Return the arrays in the order of the function's parameters, the cotangents of several
        outputs one by one."""
        parameters = [*self.interface.arguments(self.kind)]
        outputs = self.interface.output_names
        if self.kind != "vjp" or not outputs:
            return in_order(self.name, parameters, arrays, named) if named else arrays
        parameters = [*parameters[: -len(outputs)], "cotangent"]
        *inputs, cotangents = in_order(self.name, parameters, arrays, named)
        if not isinstance(cotangents, tuple) or len(cotangents) != len(outputs):
            raise UnsupportedError(
                f"{self.name}: argument cotangent is {type(cotangents).__name__}; expected a tuple "
                f"of the cotangents of {', '.join(outputs)}"
            )
        return [*inputs, *cotangents]

    def arguments(self, arrays: Sequence[Any]) -> list[Any]:
        """Check the arrays, and return each followed by the labels of its axes. None stands for
        zeros as the cotangent of one of several outputs."""
        expected = self.interface.arguments(self.kind)
        if len(arrays) != len(expected):
            raise UnsupportedError(
                f"{self.name}: takes {len(expected)} arrays ({', '.join(expected)}), "
                f"not {len(arrays)}"
            )
        array_of_name = {
            name: self._array(name, array)
            for name, array in zip(expected, arrays, strict=True)
            if array is not None or not name.startswith("cotangent_")
        }
        shapes = {name: array.shape for name, array in array_of_name.items()}
        self._require_shapes(shapes)
        entries = {name: expected[name] for name in array_of_name}
        samples = batch_axes(self.interface, entries, shapes)
        count = len(samples)
        self.samples = tuple(f"samples {axis}" for axis in range(count))
        self.dtype = np.dtype(float_type(array_of_name.values()))
        arguments = {
            name: array_of_name[name]
            if name in array_of_name
            else self.dask.zeros(samples + entry.core(self.sizes), self.dtype, chunks=-1)
            for name, entry in expected.items()
        }
        labelled: list[Any] = []
        for name, array in arguments.items():
            axes = len(argument_axes(expected[name], array.shape))
            self._require_chunks(name, array, axes)
            core = (f"{name} {axis}" for axis in range(axes, array.ndim))
            labelled += [array, (*self.samples[count - axes :], *core)]
        return labelled

    def result_tuples(self, arguments: Sequence[Any]) -> Any:
        """Call the function for each chunk of samples; the chunks of the array are the results."""
        cotangents = len(self.interface.output_names) if self.kind == "vjp" else 0
        call = partial(_call_chunk, self.module, self.kind, cotangents)
        meta = np.empty(0, object)  # without it, dask calls the function to learn the type
        return self.dask.blockwise(call, self.samples, *arguments, dtype=object, meta=meta)

    def result(self, tuples: Any, index: int, interface: ModuleInterface, key: str) -> Any:
        """Make the array of one result; `interface`: of its output."""
        shape = interface.shape(self.kind, key, self.sizes)
        is_sum = not interface.has_batch(self.kind, key)
        core = shape if is_sum else shape[1:]
        axes = {f"axis {number}": size for number, size in enumerate(core)}
        # a sum over samples: the summands of the chunks lie along axes of length 1 a chunk
        count = len(self.samples)
        chunks = zip(self.samples, tuples.numblocks, strict=True)
        array = self.dask.blockwise(
            partial(_select, index, count if is_sum else 0),
            (*self.samples, *axes),
            tuples,
            self.samples,
            new_axes=axes,
            adjust_chunks={label: (1,) * number for label, number in chunks} if is_sum else None,
            meta=np.empty((0,) * (count + len(core)), self.dtype),
        )
        return array.sum(axis=tuple(range(count)), dtype=self.dtype) if is_sum else array

    def packed(self, arrays: Sequence[Any]) -> Any:
        """Nest the results as the function returns them."""
        count, title = len(self.interface.wrt), self.kind.capitalize()
        has_outputs = bool(self.interface.output_names)
        if self.kind in ("value", "jvp"):
            return self._by_output(title, arrays)
        if self.kind == "value_and_gradient":
            value, *gradients = arrays
            return self.module.ValueAndGradient(value, self._named("Gradient", gradients))
        if self.kind != "hessian" and not (self.kind == "jacobian" and has_outputs):
            return self._named(title, arrays)
        rows = [arrays[row : row + count] for row in range(0, len(arrays), count)]
        parts = [self._named(f"{title}Row", row) for row in rows]
        return self._by_output(title, parts) if has_outputs else self._named(title, parts)

    def _by_output(self, title: str, parts: Sequence[Any]) -> Any:
        """Nest a part for each output."""
        return getattr(self.module, title)(*parts) if self.interface.output_names else parts[0]

    def _named(self, title: str, parts: Sequence[Any]) -> Any:
        return parts[0] if len(parts) == 1 else getattr(self.module, title)(*parts)

    def _require_shapes(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self.sizes = sizes_of(self.interface, shapes)
        entries = self.interface.arguments(self.kind)
        for name, shape in shapes.items():
            axes, core = argument_axes(entries[name], shape), entries[name].core(self.sizes)
            if shape != axes + core:
                texts = map(str, (*[BATCH_AXES] * entries[name].batched, *core))
                raise ShapeError(
                    f"{self.name}: argument {name} has shape {shape}; expected ({', '.join(texts)})"
                )

    def _array(self, name: str, value: Any) -> Any:
        array = self.dask.asarray(value)
        if array.dtype.kind not in "fiub" or not isinstance(array._meta, np.ndarray | np.generic):
            raise UnsupportedError(
                f"{self.name}: argument {name} is of {type(array._meta).__name__}s of dtype "
                f"{array.dtype}; expected NumPy's arrays of real numbers"
            )
        if any(np.isnan(size) for size in array.shape):
            raise ShapeError(
                f"{self.name}: the shape of argument {name} is not known, {array.shape}; call its "
                "compute_chunk_sizes() before"
            )
        return array

    def _require_chunks(self, name: str, array: Any, axes: int) -> None:
        """Raise UnsupportedError for chunks along an axis after the batch axes."""
        for axis in range(axes, array.ndim):
            if array.numblocks[axis] > 1:
                raise UnsupportedError(
                    f"{self.name}: argument {name} is in chunks {array.chunks[axis]} along axis "
                    f"{axis}, where each call needs all of it; only samples may be in chunks: pass "
                    f"{name}.rechunk({{{axis}: -1}})"
                )


def _module_and_kind(function: Callable[..., Any]) -> tuple[ModuleType, str]:
    """Return the generated module of a function, and its kind."""
    name = getattr(function, "__name__", "")
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    kinds = getattr(module, "FUNCTIONS", ())
    if module is None or name not in kinds or getattr(module, name) is not function:
        raise UnsupportedError(
            f"map_samples takes a function of a generated module, such as module.jacobian, not "
            f"{function!r}"
        )
    return module, name


def _call_chunk(module: ModuleType, kind: str, cotangents: int, *blocks: Any) -> tuple[Any, ...]:
    """Call a function for the samples of one chunk, and return its arrays. cotangents: how many of
    the last blocks are one argument, the cotangents of several outputs."""
    arguments = [*map(_single_block, blocks)]
    if cotangents:
        arguments = [*arguments[:-cotangents], tuple(arguments[-cotangents:])]
    return tuple(_leaves(getattr(module, kind)(*arguments)))


def _single_block(block: Any) -> Any:
    """Take a chunk out of its lists: dask nests it in one for each axis that results lack."""
    while isinstance(block, list):
        (block,) = block
    return block


def _leaves(result: Any) -> Iterator[Any]:
    if isinstance(result, tuple):
        for part in result:
            yield from _leaves(part)
    else:
        yield np.asarray(result)


def _select(index: int, new_axes: int, arrays: tuple[Any, ...]) -> Any:
    """Take one of the arrays; a sum over samples gets axes, along which dask adds the chunks."""
    return arrays[index][(None,) * new_axes]
