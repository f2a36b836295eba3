"""Generated modules with `batch=` on dask's arrays: samples in chunks, one call for each."""

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
from derivatrix.runtime.adapters.sizes import float_type, sizes_of
from derivatrix.runtime.adapters.structures import project
from derivatrix.runtime.errors import ShapeError, UnsupportedError
from derivatrix.runtime.interface import ModuleInterface

LEAST = "2026.8"
SAMPLES = "samples"
"""The index of the axis of samples."""


def map_samples(function: Callable[..., Any], /, *arrays: Any, **named: Any) -> Any:
    """A function of a generated module with `batch=`, as `module.vjp`, for samples in chunks.

    arrays, named: what the function takes, dask arrays or what becomes one; those with samples are
    in chunks along their first axis alone, all others are one chunk. Structured inputs are replaced
    by the nearest of their structure. Returned is what the function
    returns, with lazy dask arrays in the place of NumPy's: of the samples' chunks, but cotangents
    of inputs that the samples share in one chunk, summed over all chunks in a tree.

    Each task has the module with it, so workers need derivatrix, but not the module. Raises
    UnsupportedError for another function, numbers that are not real and chunks along other axes,
    ShapeError for shapes that disagree or are not known."""
    require_package("dask", LEAST)
    call = _Call(function)
    found = call.arguments(call.ordered(arrays, named))
    parts = call.parts(found)
    keys = call.interface.keys(call.kind)
    return call.packed([call.result(parts, key, place) for place, key in enumerate(keys)])


class _Call:
    """One function, and the sizes and the type of what it is given."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.dask = importlib.import_module("dask.array")
        self.module, self.kind = _found(function)
        self.interface = ModuleInterface(self.module)
        self.name = f"{self.interface.name}.{self.kind}"
        if not self.interface.batched:
            raise UnsupportedError(
                f"{self.name}: no input has a batch axis; declare which have samples, as in "
                f"dx.function({self.interface.name!r}, ..., batch=[...])"
            )
        self.sizes: dict[str, int] = {}
        self.dtype = np.dtype(np.float64)

    def ordered(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        """The arrays in the order of the function's parameters."""
        expected = self.interface.arguments(self.kind)
        return in_order(self.name, expected, arrays, named) if named else arrays

    def arguments(self, arrays: Sequence[Any]) -> list[Any]:
        """The arrays, checked, each followed by the names of its axes."""
        expected = self.interface.arguments(self.kind)
        if len(arrays) != len(expected):
            raise UnsupportedError(
                f"{self.name}: takes {len(expected)} arrays ({', '.join(expected)}), "
                f"not {len(arrays)}"
            )
        given = zip(expected, arrays, strict=True)
        found = {name: self._array(name, array) for name, array in given}
        self._require_shapes({name: array.shape for name, array in found.items()})
        self.dtype = np.dtype(float_type(found.values()))
        arguments: list[Any] = []
        for name, array in found.items():
            batched = expected[name].batched
            self._require_chunks(name, array, batched)
            core = (f"{name} {axis}" for axis in range(batched, array.ndim))
            arguments += [array, (*[SAMPLES] * batched, *core)]
        return arguments

    def parts(self, arguments: Sequence[Any]) -> Any:
        """An array whose chunks are what the calls return, one call for each chunk of samples."""
        structures = [entry.structure for entry in self.interface.inputs]
        called = partial(_called, self.module, self.kind, structures)
        meta = np.empty(0, object)
        return self.dask.blockwise(called, (SAMPLES,), *arguments, dtype=object, meta=meta)

    def result(self, parts: Any, key: str, place: int) -> Any:
        """The array of one result."""
        shape = self.interface.shape(self.kind, key, self.sizes)
        summed = self.kind == "vjp" and not self.interface.input(key).batched
        core = shape if summed else shape[1:]
        axes = {f"axis {number}": size for number, size in enumerate(core)}
        found = self.dask.blockwise(
            partial(_part, place, summed),
            (SAMPLES, *axes),
            parts,
            (SAMPLES,),
            new_axes=axes,
            adjust_chunks={SAMPLES: (1,) * parts.numblocks[0]} if summed else None,
            meta=np.empty((0,) * (1 + len(core)), self.dtype),
        )
        return found.sum(axis=0, dtype=self.dtype) if summed else found

    def packed(self, arrays: Sequence[Any]) -> Any:
        """The results put together as the function returns them."""
        count = len(self.interface.wrt)
        if self.kind in ("value", "jvp"):
            return arrays[0]
        if self.kind == "value_and_gradient":
            value, *gradients = arrays
            return self.module.ValueAndGradient(value, self._named("Gradient", gradients))
        if self.kind != "hessian":
            return self._named(self.kind.capitalize(), arrays)
        rows = [arrays[row : row + count] for row in range(0, len(arrays), count)]
        return self._named("Hessian", [self._named("HessianRow", row) for row in rows])

    def _named(self, title: str, parts: Sequence[Any]) -> Any:
        return parts[0] if len(parts) == 1 else getattr(self.module, title)(*parts)

    def _require_shapes(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self.sizes = sizes_of(self.interface, shapes)
        for name, entry in self.interface.arguments(self.kind).items():
            expected = entry.full(self.sizes)
            if shapes[name] != expected:
                raise ShapeError(
                    f"{self.name}: argument {name} has shape {shapes[name]}; expected {expected}"
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

    def _require_chunks(self, name: str, array: Any, batched: bool) -> None:
        for axis in range(batched, array.ndim):
            if array.numblocks[axis] > 1:
                raise UnsupportedError(
                    f"{self.name}: argument {name} is in chunks {array.chunks[axis]} along axis "
                    f"{axis}, where each call needs all of it; only samples may be in chunks: pass "
                    f"{name}.rechunk({{{axis}: -1}})"
                )


def _found(function: Callable[..., Any]) -> tuple[ModuleType, str]:
    """The generated module of a function, and what kind it is of."""
    name = getattr(function, "__name__", "")
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    kinds = getattr(module, "FUNCTIONS", ())
    if module is None or name not in kinds or getattr(module, name) is not function:
        raise UnsupportedError(
            f"map_samples takes a function of a generated module, such as module.jacobian, not "
            f"{function!r}"
        )
    return module, name


def _called(
    module: ModuleType, kind: str, structures: Sequence[str], *blocks: Any
) -> tuple[Any, ...]:
    """The arrays that a function returns for the samples of one chunk."""
    arrays = [*map(_only, blocks)]
    inputs = [
        project(structure, array, np.tril, np.triu)
        for structure, array in zip(structures, arrays, strict=False)
    ]
    return tuple(_leaves(getattr(module, kind)(*inputs, *arrays[len(inputs) :])))


def _only(block: Any) -> Any:
    """A chunk, which comes in lists where results do not have its axes."""
    while isinstance(block, list):
        (block,) = block
    return block


def _leaves(result: Any) -> Iterator[Any]:
    if isinstance(result, tuple):
        for part in result:
            yield from _leaves(part)
    else:
        yield np.asarray(result)


def _part(place: int, summed: bool, parts: tuple[Any, ...]) -> Any:
    """One of the arrays; what is summed over samples, as that of a single one."""
    return parts[place][None] if summed else parts[place]
