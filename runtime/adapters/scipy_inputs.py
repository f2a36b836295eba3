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
from derivatrix.runtime.adapters.sizes import known_sizes, sizes_of
from derivatrix.runtime.adapters.structures import project
from derivatrix.runtime.errors import DeclarationError, ShapeError, UnsupportedError
from derivatrix.runtime.interface import BATCH, Input, ModuleInterface, names_in
from derivatrix.templates.support.common.arguments import _number_array

Array = np.ndarray
Sizes = dict[str, int]


@dataclass(frozen=True)
class Part:
    """Where the vector has an input. `shape` is the array's, `free` that of its parametrisation."""

    entry: Input
    map: General
    shape: tuple[int, ...]
    free: tuple[int, ...]
    place: slice

    def of(self, vector: Array) -> Array:
        """The part of a vector."""
        return vector[self.place].reshape(self.free)


@dataclass(frozen=True)
class Point:
    """A vector, its parts, and the sizes of the function there."""

    vector: Array
    parts: tuple[Part, ...]
    sizes: Sizes

    @property
    def curved(self) -> bool:
        """Whether the parametrisation of a part has a second derivative."""
        return not all(part.map.linear for part in self.parts)

    def pullback(self, found: Mapping[str, Array]) -> Array:
        """Cotangents of the inputs as one of the vector."""
        parts = [
            part.map.pullback(part.of(self.vector), np.asarray(found[part.entry.name]))
            for part in self.parts
        ]
        return np.concatenate([part.reshape(-1) for part in parts])


class Inputs:
    """The inputs of a module: `names` are free, the others have values."""

    def __init__(
        self, interface: ModuleInterface, wrt: Sequence[str] | None, fixed: Mapping[str, Any]
    ) -> None:
        self.interface = interface
        self.names = self._chosen(wrt, fixed)
        self.fixed = {name: self.numbers(name, value) for name, value in fixed.items()}
        self._known = known_sizes(interface, _shapes(self.fixed))
        for name, array in self.fixed.items():
            structure = interface.input(name).structure
            self.fixed[name] = np.asarray(project(structure, array, np.tril, np.triu))
        self._packed: Sizes = {}
        self._maps: dict[tuple[str, tuple[int, ...]], General] = {}
        self._layouts: dict[int, tuple[tuple[Part, ...], Sizes]] = {}

    def pack(self, values: Any, named: Mapping[str, Any]) -> Array:
        """The vector of arrays; see `Objective.pack`."""
        if named and values is not None:
            raise self._refusal(f"pack: both arrays and {', '.join(named)}; give all by name")
        given = named or values
        if not isinstance(given, Mapping):
            arrays = values if isinstance(values, tuple) else (values,)
            if len(arrays) != len(self.names):
                raise self._refusal(f"pack: {len(arrays)} arrays for {', '.join(self.names)}")
            given = dict(zip(self.names, arrays, strict=True))
        self._require_names("pack", given, self.names)
        found = {name: self.numbers(name, given[name]) for name in self.names}
        self._packed = sizes_of(self.interface, _shapes(self.fixed | found))
        self._layouts.clear()
        return np.concatenate(
            [self._free(p, found[p.entry.name]) for p in self._parts(self._packed)]
        )

    def unpack(self, x: Any) -> Any:
        """The arrays of a vector, as a named tuple."""
        point = self.point(x)
        arrays = (part.map.array(part.of(point.vector).copy()) for part in point.parts)
        return _named_tuple(self.interface.name, self.names, arrays)

    def point(self, x: Any) -> Point:
        """A vector with its parts. Raises ShapeError where it has another length than expected."""
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
            if not part.map.placed:
                raise self._refusal(
                    f"{part.entry.name} is {part.entry.structure}: x is about the first array that "
                    "was given to pack; pack the same one for each objective"
                )
        return point

    def values(self, point: Point) -> list[Array]:
        """The values of all inputs, in the function's order."""
        arrays = {part.entry.name: part.map.array(part.of(point.vector)) for part in point.parts}
        found = self.fixed | arrays
        return [found[entry.name][()] for entry in self.interface.inputs]  # numbers of rank 0

    def tangents(self, point: Point, direction: Array) -> list[Array]:
        """A tangent for each input that the module differentiates by."""
        found = {
            part.entry.name: part.map.tangent(part.of(point.vector), part.of(direction))
            for part in point.parts
        }
        return [
            found[entry.name][()] if entry.name in found else np.zeros(entry.full(point.sizes))
            for entry in self.interface.wrt
        ]

    def numbers(self, name: str, value: Any) -> Array:
        """An argument as a float64 array. Raises UnsupportedError for what is no real array."""
        try:
            array = _number_array(self.interface.name, name, value)
        except TypeError as error:
            raise UnsupportedError(str(error)) from error
        return np.asarray(array, np.float64, order="C")

    def _chosen(self, wrt: Sequence[str] | None, fixed: Iterable[str]) -> tuple[str, ...]:
        by = [entry.name for entry in self.interface.wrt]
        if wrt is None:
            wrt = [name for name in by if name not in fixed]
        names = (wrt,) if isinstance(wrt, str) else tuple(wrt)
        both = [name for name in names if name in fixed]
        if not names or len({*names}) < len(names) or both:
            given = f", with values for {', '.join(both)}" if both else ""
            raise self._refusal(
                f"objective: wrt is {names}{given}; name one or more inputs, each once, and none "
                "that has a value"
            )
        self._require_names("objective", [*names, *fixed], [e.name for e in self.interface.inputs])
        for name in names:
            if name not in by:
                raise UnsupportedError(
                    f"{self.interface.name}: objective: there is no derivative by {name}, only by "
                    f"{', '.join(by)}; declare the function with {name} in wrt, or give it a value"
                )
        return names

    def _require_names(self, asked: str, given: Iterable[str], expected: Sequence[str]) -> None:
        missing = [name for name in expected if name not in given]
        unknown = [str(name) for name in given if name not in expected]
        wrong = [f"lacks {', '.join(missing)}"] * bool(missing)
        wrong += [f"has {', '.join(unknown)}, which is no such input"] * bool(unknown)
        if wrong:
            advice = ", each in wrt or with a value" if asked == "objective" else ""
            raise self._refusal(
                f"{asked} {' and '.join(wrong)}; expected {', '.join(expected)}{advice}"
            )

    def _refusal(self, text: str) -> DeclarationError:
        return DeclarationError(f"{self.interface.name}: {text}")

    def _free(self, part: Part, array: Array) -> Array:
        """The part of the vector for an array of an input."""
        try:
            own = part.map.about(array)
            with np.errstate(invalid="ignore", divide="ignore"):
                free = own.free(array)
                again = own.array(free)
            fits = np.isfinite(free).all() and np.allclose(again, array, rtol=1e-6, atol=1e-12)
        except np.linalg.LinAlgError:
            fits = False
        if not fits:
            raise self._refusal(
                f"pack: {part.entry.name} is declared {part.entry.structure}, and the array given "
                f"for it is not, or {part.map.boundary}"
            )
        self._maps[part.entry.name, part.shape] = own
        return free.reshape(-1)

    def _parts(self, sizes: Sizes) -> tuple[Part, ...]:
        parts: list[Part] = []
        start = 0
        for name in self.names:
            entry = self.interface.input(name)
            shape = entry.full(sizes)
            own = self._maps.get((name, shape), PARAMETRISATIONS[entry.structure])
            free = own.shape(shape)
            place = slice(start, start + prod(free))
            parts.append(Part(entry, own, shape, free, place))
            start = place.stop
        return tuple(parts)

    def _sizes(self, length: int) -> Sizes:
        """The sizes for a vector of this length: one that the fixed inputs do not tell follows from
        the length, several are those of the arrays packed last."""
        entries = [self.interface.input(name) for name in self.names]
        texts = [text for entry in entries for text in entry.shape]
        wanted = dict.fromkeys(name for text in texts for name in names_in(text))
        wanted |= {BATCH: None} if any(entry.batched for entry in entries) else {}
        unknown = [name for name in wanted if name not in self._known]

        def count(size: int) -> int:
            return self._parts(self._known | dict.fromkeys(unknown, size))[-1].place.stop

        sizes = self._known
        if len(unknown) == 1:
            sizes = sizes | {unknown[0]: 1 + bisect_left(range(1, length + 1), length, key=count)}
        elif unknown and not self._packed:
            raise ShapeError(
                f"{self.interface.name}: no value tells the sizes {', '.join(unknown)}; make x by "
                "pack"
            )
        elif unknown:
            sizes = self._packed
        expected = self._parts(sizes)[-1].place.stop
        if expected != length:
            known = ", ".join(f"{name} = {sizes[name]}" for name in wanted)
            raise ShapeError(
                f"{self.interface.name}: x has {length} numbers; expected {expected} for "
                f"{', '.join(self.names)} with {known}"
            )
        return sizes


@cache
def _tuple_type(title: str, names: tuple[str, ...]) -> Any:
    """A type of named tuples whose pickles need no module that has it."""

    def reduced(self: Any) -> tuple[Any, ...]:
        return _named_tuple, (title, names, tuple(self))

    base = namedtuple(title, names)  # type: ignore[misc]
    return type(title, (base,), {"__slots__": (), "__reduce__": reduced})


def _named_tuple(title: str, names: tuple[str, ...], values: Iterable[Any]) -> Any:
    return _tuple_type(title, names)(*values)


def _shapes(arrays: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}
