"""The free inputs of a module as one flat vector."""

from __future__ import annotations

from bisect import bisect_left
from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np

from derivatrix.runtime.adapters.parametrisations import PARAMETRISATIONS, General
from derivatrix.runtime.adapters.sizes import batch_axes, known_sizes, sizes_of
from derivatrix.runtime.errors import DeclarationError, ShapeError, UnsupportedError
from derivatrix.runtime.interface import BATCH, Input, ModuleInterface, names_in
from derivatrix.templates.support.common.arguments import _number_array

Array = np.ndarray
Sizes = dict[str, int]
MAX_SIZE = 2**62
"""Largest size that a vector's length is tried to give."""


@dataclass(frozen=True)
class Part:
    """The numbers of one free input in the vector.

    map: the parametrisation. shape: of the array. free: of its parameters. place: in the vector."""

    entry: Input
    map: General
    shape: tuple[int, ...]
    free: tuple[int, ...]
    place: slice

    def of(self, vector: Array) -> Array:
        """Return the part's parameters in a vector."""
        return vector[self.place].reshape(self.free)


@dataclass(frozen=True)
class Point:
    """A vector, its parts, and the sizes of the function there."""

    vector: Array
    parts: tuple[Part, ...]
    sizes: Sizes

    def pullback(self, cotangents: Mapping[str, Array]) -> Array:
        """Pull cotangents of the inputs back to the vector."""
        pulled = [
            part.map.pullback(part.of(self.vector), np.asarray(cotangents[part.entry.name]))
            for part in self.parts
        ]
        return np.concatenate([cotangent.reshape(-1) for cotangent in pulled])


class Inputs:
    """The inputs of a module: `names` are free, the others are fixed."""

    def __init__(
        self, interface: ModuleInterface, wrt: Sequence[str] | None, fixed: Mapping[str, Any]
    ) -> None:
        self.interface = interface
        self.names = self._free_names(wrt, fixed)
        self.fixed = {name: self.numbers(name, value) for name, value in fixed.items()}
        self._known = known_sizes(interface, _shapes(self.fixed))
        self._axes = self._batch_axes(self.fixed)
        self._packed: Sizes = {}
        self._maps: dict[tuple[str, tuple[int, ...]], General] = {}
        self._layouts: dict[int, tuple[tuple[Part, ...], Sizes]] = {}

    def pack(self, values: Any, named: Mapping[str, Any]) -> Array:
        """Return the vector of arrays; see `Objective.pack`."""
        if named and values is not None:
            raise self._error(f"pack: both arrays and {', '.join(named)}; give all by name")
        by_name = named or values
        if not isinstance(by_name, Mapping):
            sequence = values if isinstance(values, tuple) else (values,)
            if len(sequence) != len(self.names):
                raise self._error(f"pack: {len(sequence)} arrays for {', '.join(self.names)}")
            by_name = dict(zip(self.names, sequence, strict=True))
        self._require_names("pack", by_name, self.names)
        arrays = {name: self.numbers(name, by_name[name]) for name in self.names}
        self._packed = sizes_of(self.interface, _shapes(self.fixed | arrays))
        self._axes = self._batch_axes(self.fixed | arrays)
        if BATCH in self._known:  # that of fixed inputs, which the free ones may broadcast
            self._known[BATCH] = self._packed[BATCH]
        self._layouts.clear()
        parts = self._parts(self._packed)
        for part in parts:
            if arrays[part.entry.name].shape != part.shape:
                raise ShapeError(
                    f"{self.interface.name}: pack: {part.entry.name} has shape "
                    f"{arrays[part.entry.name].shape}; expected {part.shape}: free inputs have all "
                    "batch axes"
                )
        return np.concatenate([self._parameters(part, arrays[part.entry.name]) for part in parts])

    def unpack(self, x: Any) -> Any:
        """Return the arrays of a vector, as a named tuple."""
        point = self.point(x)
        # copies: the identity parametrisation returns a view of its argument
        arrays = (part.map.array(part.of(point.vector).copy()) for part in point.parts)
        return _named_tuple(self.interface.name, self.names, arrays)

    def point(self, x: Any) -> Point:
        """Return a vector with its parts. Raises ShapeError for a wrong length."""
        vector = self.numbers("x", x)
        if vector.ndim != 1:
            raise ShapeError(
                f"{self.interface.name}: x has shape {vector.shape}; expected a flat vector, such "
                "as pack makes"
            )
        if len(vector) not in self._layouts:
            sizes = self._sizes(len(vector))
            self._layouts[len(vector)] = self._parts(sizes), sizes
        point = Point(vector, *self._layouts[len(vector)])
        for part in point.parts:
            if not part.map.has_centre:
                raise self._error(
                    f"{part.entry.name} is {part.entry.structure}: x is about the first array that "
                    "was given to pack; pack the same one for each objective"
                )
        return point

    def values(self, point: Point) -> list[Array]:
        """Return the values of all inputs, in the function's order; those of rank 0 as numbers."""
        arrays = {part.entry.name: part.map.array(part.of(point.vector)) for part in point.parts}
        values = self.fixed | arrays
        return [values[entry.name][()] for entry in self.interface.inputs]

    def tangents(self, point: Point, direction: Array) -> list[Array]:
        """Return a tangent for each input that the module differentiates by."""
        tangents = {
            part.entry.name: part.map.tangent(part.of(point.vector), part.of(direction))
            for part in point.parts
        }
        return [
            tangents[entry.name][()]
            if entry.name in tangents
            else np.zeros_like(self.fixed[entry.name])
            for entry in self.interface.wrt
        ]

    def value_shapes(self, point: Point) -> list[tuple[int, ...]]:
        """Return the shapes of the function's outputs."""
        outputs = self.interface.outputs
        shapes = [output.shape("value", "", point.sizes) for output in outputs]
        if not self.interface.batched:
            return shapes
        return [self._over_axes(shape[1:], point.sizes) for shape in shapes]

    def _batch_axes(self, arrays: Mapping[str, Array]) -> tuple[int, ...] | None:
        """Return the batch axes of arrays; None if no input among them has any."""
        entries = {name: self.interface.input(name) for name in arrays}
        if not any(entry.batched for entry in entries.values()):
            return None
        return batch_axes(self.interface, entries, _shapes(arrays))

    def _over_axes(self, core: tuple[int, ...], sizes: Sizes) -> tuple[int, ...]:
        """Return the shape of a sample after the batch axes: those of known arrays, or one axis for
        another number of samples."""
        if self._axes is not None and prod(self._axes) == sizes[BATCH]:
            return (*self._axes, *core)
        return (sizes[BATCH], *core)

    def numbers(self, name: str, value: Any) -> Array:
        """Convert an argument to a float64 array; raises UnsupportedError if it is not real."""
        try:
            array = _number_array(self.interface.name, name, value)
        except TypeError as error:
            raise UnsupportedError(str(error)) from error
        return np.asarray(array, np.float64, order="C")

    def _free_names(self, wrt: Sequence[str] | None, fixed: Iterable[str]) -> tuple[str, ...]:
        """Return the names of the free inputs, after checking `wrt` and `fixed`."""
        differentiable = [entry.name for entry in self.interface.wrt]
        if wrt is None:
            wrt = [name for name in differentiable if name not in fixed]
        names = (wrt,) if isinstance(wrt, str) else tuple(wrt)
        free_and_fixed = [name for name in names if name in fixed]
        if not names or len({*names}) < len(names) or free_and_fixed:
            values = f", with values for {', '.join(free_and_fixed)}" if free_and_fixed else ""
            raise self._error(
                f"objective: wrt is {names}{values}; name one or more inputs, each once, and none "
                "that has a value"
            )
        self._require_names("objective", [*names, *fixed], [e.name for e in self.interface.inputs])
        for name in names:
            if name not in differentiable:
                raise UnsupportedError(
                    f"{self.interface.name}: objective: there is no derivative by {name}, only by "
                    f"{', '.join(differentiable)}; declare the function with {name} in wrt, or "
                    "give it a value"
                )
        return names

    def _require_names(self, method: str, names: Iterable[str], expected: Sequence[str]) -> None:
        missing = [name for name in expected if name not in names]
        unknown = [str(name) for name in names if name not in expected]
        problems = [f"lacks {', '.join(missing)}"] * bool(missing)
        problems += [f"has {', '.join(unknown)}, which is no such input"] * bool(unknown)
        if problems:
            advice = ", each in wrt or with a value" if method == "objective" else ""
            raise self._error(
                f"{method} {' and '.join(problems)}; expected {', '.join(expected)}{advice}"
            )

    def _error(self, text: str) -> DeclarationError:
        return DeclarationError(f"{self.interface.name}: {text}")

    def _parameters(self, part: Part, array: Array) -> Array:
        """Compute the part of the vector for an array of an input."""
        try:
            parametrisation = part.map.centred(array)
            with np.errstate(invalid="ignore", divide="ignore"):
                free = parametrisation.free(array)
                reconstructed = parametrisation.array(free)
            is_member = np.isfinite(free).all() and np.allclose(reconstructed, array, 1e-6, 1e-12)
        except np.linalg.LinAlgError:
            is_member = False
        if not is_member:
            raise self._error(
                f"pack: {part.entry.name} is declared {part.entry.structure}, and the array given "
                f"for it is not, or {part.map.boundary}"
            )
        self._maps[part.entry.name, part.shape] = parametrisation
        return free.reshape(-1)

    def _parts(self, sizes: Sizes) -> tuple[Part, ...]:
        parts: list[Part] = []
        start = 0
        for name in self.names:
            entry = self.interface.input(name)
            core = entry.core(sizes)
            shape = self._over_axes(core, sizes) if entry.batched else core
            parametrisation = self._maps.get((name, shape), PARAMETRISATIONS[entry.structure])
            free = parametrisation.shape(shape)
            place = slice(start, start + prod(free))
            parts.append(Part(entry, parametrisation, shape, free, place))
            start = place.stop
        return tuple(parts)

    def _sizes(self, length: int) -> Sizes:
        """Return the sizes for a vector of this length. Fixed inputs give some; if one more is
        unknown, the length gives it; if several are, those of the last `pack` are used."""
        entries = [self.interface.input(name) for name in self.names]
        texts = [text for entry in entries for text in entry.shape]
        size_names = dict.fromkeys(name for text in texts for name in names_in(text))
        size_names |= {BATCH: None} if any(entry.batched for entry in entries) else {}
        unknown = [name for name in size_names if name not in self._known]

        def count(size: int) -> int:
            return self._parts(self._known | dict.fromkeys(unknown, size))[-1].place.stop

        sizes = self._known
        if len(unknown) == 1:
            candidates = range(1, MAX_SIZE)  # more than `length`: an input may have n - 100 entries
            sizes = sizes | {unknown[0]: 1 + bisect_left(candidates, length, key=count)}
        elif unknown and not self._packed:
            raise ShapeError(
                f"{self.interface.name}: no value tells the sizes {', '.join(unknown)}; make x by "
                "pack"
            )
        elif unknown:
            sizes = self._packed
        expected = self._parts(sizes)[-1].place.stop
        if expected != length:
            known = ", ".join(f"{name} = {sizes[name]}" for name in size_names)
            raise ShapeError(
                f"{self.interface.name}: x has {length} numbers; expected {expected} for "
                f"{', '.join(self.names)} with {known}"
            )
        return sizes


@cache
def _tuple_type(title: str, names: tuple[str, ...]) -> Any:
    """Make a type of named tuples that can be pickled although no module has it."""

    def reduced(self: Any) -> tuple[Any, ...]:
        return _named_tuple, (title, names, tuple(self))

    base = namedtuple(title, names)  # type: ignore[misc]
    return type(title, (base,), {"__slots__": (), "__reduce__": reduced})


def _named_tuple(title: str, names: tuple[str, ...], values: Iterable[Any]) -> Any:
    return _tuple_type(title, names)(*values)


def _shapes(arrays: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}
